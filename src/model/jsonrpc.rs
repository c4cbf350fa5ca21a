//! Strict JSON, parsed once: the only room that knows `simd_json`.
