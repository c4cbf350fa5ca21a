//! Server-sent events, read incrementally by the WHATWG rules (HTML living standard §9.2.6).
//!
//! Takes bytes as they arrive, gives the data of each complete event. Knows no JSON and no socket: whether an event is the
//! answer is the caller's word, given after the event is complete.
//!
//! **Invariant.** Memory stays within `event_bytes_max`, and no more than both limits together is ever read: an
//! event that is too large is refused while it arrives (contract §4 `tool_result_too_large`).

use std::ops::ControlFlow;

use memchr::memchr2;
use thiserror::Error;

/// Reads one stream from its first byte.
///
/// Line ends are CR, LF or CRLF; one leading byte-order mark is skipped; comments, `id`, `retry`, unknown fields, events of
/// another type than `message`, and events without data are passed over; what the stream leaves unfinished is dropped.
#[derive(Debug)]
pub struct Reader {
    event_bytes_max: usize,
    other_bytes_max: usize,
    other_bytes: usize,
    data: Vec<u8>,
    has_data: bool,
    kind: Short,
    field: Field,
    name: Short,
    value_started: bool,
    after_cr: bool,
    mark: Option<usize>,
    fault: Option<SseFault>,
}

/// Why a stream is not read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SseFault {
    /// The data of one event is larger than the limit.
    #[error("an event is larger than {limit} bytes")]
    EventTooLarge {
        /// The limit, in bytes; equal passes.
        limit: usize,
    },
    /// Everything that is not the answer's data is, together, larger than the limit.
    #[error("a stream has more than {limit} bytes beside its answer")]
    StreamTooLarge {
        /// The limit, in bytes; equal passes.
        limit: usize,
    },
}

impl Reader {
    /// A reader with the limit of the answer's data, and the limit of everything else, in bytes (contract §4).
    #[must_use]
    pub const fn new(event_bytes_max: usize, other_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            other_bytes_max,
            other_bytes: 0,
            data: Vec::new(),
            has_data: false,
            kind: Short::new(),
            field: Field::Naming,
            name: Short::new(),
            value_started: false,
            after_cr: false,
            mark: Some(0),
            fault: None,
        }
    }

    /// Reads the next bytes and calls `on_event` with the data of each event that they complete.
    ///
    /// `Break` says that the event is the answer: the rest of `chunk` is not read, and [`Reader::take_answer`] hands the data over.
    /// `Continue` says that it is not, and adds its data to the bytes beside the answer.
    ///
    /// # Errors
    /// [`SseFault`], at once and at every later call.
    pub fn push<T>(
        &mut self,
        chunk: &[u8],
        mut on_event: impl FnMut(&[u8]) -> ControlFlow<T>,
    ) -> Result<ControlFlow<T>, SseFault> {
        let mut rest = chunk;
        while self.fault.is_none()
            && let Some(&byte) = rest.first()
        {
            let (taken, line_ended) = if self.is_overhead(byte) { (1, false) } else { self.take(rest) };
            rest = rest.get(taken..).unwrap_or_default();
            if line_ended
                && self.end_line()
                && let ControlFlow::Break(answer) = self.dispatch(&mut on_event)
            {
                return Ok(ControlFlow::Break(answer));
            }
        }
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// The data of the event that was called the answer.
    #[must_use]
    pub fn take_answer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.data)
    }

    /// Bytes read so far that are not data of the current event.
    #[must_use]
    pub const fn other_bytes(&self) -> usize {
        self.other_bytes
    }

    /// Passes over a leading mark and the second half of a CRLF.
    fn is_overhead(&mut self, byte: u8) -> bool {
        const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
        if let Some(seen) = self.mark {
            if MARK.get(seen) == Some(&byte) {
                self.mark = Some(seen + 1).filter(|&seen| seen < MARK.len());
                self.spend(1);
                return true;
            }
            // Half a mark is the beginning of an unknown field's name.
            if seen > 0 {
                self.field = Field::Ignored;
            }
            self.mark = None;
        }
        let half = std::mem::take(&mut self.after_cr) && byte == b'\n';
        if half {
            self.spend(1);
        }
        half
    }

    /// Takes some bytes of the current line; how many, and whether they end it.
    fn take(&mut self, rest: &[u8]) -> (usize, bool) {
        let Some(&byte) = rest.first() else { return (0, false) };
        if matches!(byte, b'\r' | b'\n') {
            self.after_cr = byte == b'\r';
            self.spend(1);
            return (1, true);
        }
        match self.field {
            Field::Naming if byte == b':' => {
                self.field = self.named();
                self.value_started = false;
                self.begin_value();
            }
            Field::Naming => self.name.push(byte),
            _ if !self.value_started && byte == b' ' => self.value_started = true,
            _ => {
                self.value_started = true;
                let line = rest.get(..memchr2(b'\r', b'\n', rest).unwrap_or(rest.len())).unwrap_or_default();
                self.value(line);
                return (line.len(), false);
            }
        }
        self.spend(1);
        (1, false)
    }

    fn value(&mut self, bytes: &[u8]) {
        match self.field {
            Field::Data => self.keep(bytes),
            Field::Event => {
                bytes.iter().for_each(|&byte| self.kind.push(byte));
                self.spend(bytes.len());
            }
            Field::Ignored | Field::Naming => self.spend(bytes.len()),
        }
    }

    /// What a field does before its first byte: a new data line, a new event type.
    fn begin_value(&mut self) {
        match self.field {
            Field::Data => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.keep(b"\n");
                }
            }
            Field::Event => self.kind = Short::new(),
            Field::Ignored | Field::Naming => {}
        }
    }

    /// Ends a line; whether it was the blank line that ends an event.
    fn end_line(&mut self) -> bool {
        let blank = self.field == Field::Naming && self.name.is_empty();
        if self.field == Field::Naming && !blank {
            self.field = self.named();
            self.begin_value();
        }
        self.field = Field::Naming;
        self.name = Short::new();
        blank
    }

    fn dispatch<T>(&mut self, on_event: &mut impl FnMut(&[u8]) -> ControlFlow<T>) -> ControlFlow<T> {
        let wanted = self.kind.is_empty() || self.kind.is(b"message");
        self.kind = Short::new();
        self.has_data = false;
        if self.fault.is_none() && wanted && !self.data.is_empty() {
            on_event(&self.data)?;
        }
        self.spend(self.data.len());
        self.data.clear();
        ControlFlow::Continue(())
    }

    fn named(&self) -> Field {
        match () {
            () if self.name.is(b"data") => Field::Data,
            () if self.name.is(b"event") => Field::Event,
            () => Field::Ignored,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.data.len().saturating_add(bytes.len()) > self.event_bytes_max {
            self.fault.get_or_insert(SseFault::EventTooLarge { limit: self.event_bytes_max });
        } else {
            self.data.extend_from_slice(bytes);
        }
    }

    fn spend(&mut self, bytes: usize) {
        self.other_bytes = self.other_bytes.saturating_add(bytes);
        if self.other_bytes > self.other_bytes_max {
            self.fault.get_or_insert(SseFault::StreamTooLarge { limit: self.other_bytes_max });
        }
    }
}

/// Which field the current line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Naming,
    Data,
    Event,
    Ignored,
}

/// The beginning of a word that matters only when it is short.
#[derive(Clone, Copy, Debug)]
struct Short {
    bytes: [u8; 8],
    len: usize,
}

impl Short {
    const fn new() -> Self {
        Self { bytes: [0; 8], len: 0 }
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    fn is(&self, word: &[u8]) -> bool {
        self.bytes.get(..self.len) == Some(word)
    }

    const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
