//! Tests of the control room.
