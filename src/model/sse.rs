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
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use futures::{StreamExt as _, executor::block_on, stream};
    use proptest::prelude::*;

    use super::*;

    const AMPLE: usize = 1 << 20;

    /// All events of `chunks`, none of them the answer.
    fn events<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Vec<String>, SseFault> {
        let mut reader = Reader::new(AMPLE, AMPLE);
        let mut found = Vec::new();
        for chunk in chunks {
            let flow = reader.push::<()>(chunk, |data| {
                found.push(String::from_utf8_lossy(data).into_owned());
                ControlFlow::Continue(())
            })?;
            assert_eq!(flow, ControlFlow::Continue(()));
        }
        Ok(found)
    }

    /// What `sse-stream` says of the same bytes, by our choice of events.
    fn reference(bytes: &[u8]) -> Option<Vec<String>> {
        let input = stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::copy_from_slice(bytes))]);
        let all: Vec<_> = block_on(sse_stream::SseByteStream::new(input).collect());
        let all: Result<Vec<_>, _> = all.into_iter().collect();
        let wanted = |event: &sse_stream::Sse| matches!(event.event.as_deref(), None | Some("" | "message"));
        let data = all.ok()?.into_iter().filter(wanted).filter_map(|event| event.data);
        Some(data.filter(|data| !data.is_empty()).collect())
    }

    /// A stream and the events that it holds.
    const CASES: [(&str, &[&str]); 34] = [
        ("", &[]),
        ("data: a\n\n", &["a"]),
        ("event: message\ndata: {\"id\":1}\n\n", &["{\"id\":1}"]),
        ("event: message\r\ndata: a\r\n\r\n", &["a"]),
        ("event: message\rdata: a\r\r", &["a"]),
        ("data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", &["a", "b", "c"]),
        ("data: a\r\ndata: b\rdata: c\ndata: d\n\n", &["a\nb\nc\nd"]),
        ("\u{feff}data: a\n\n", &["a"]),
        ("\u{feff}\u{feff}data: a\n\ndata: b\n\n", &["b"]),
        ("\u{feff}", &[]),
        ("\n\u{feff}data: a\n\n", &[]),
        ("data:a\n\n", &["a"]),
        ("data:  a \n\n", &[" a "]),
        ("data:\ta\n\n", &["\ta"]),
        (": comment\n\n: k\ndata: a\n: k\ndata: b\n\n:\n\n", &["a\nb"]),
        ("data: \n\ndata: a\n\n", &["a"]),
        ("data\n\ndata:\n\ndata: a\n\n", &["a"]),
        ("data\ndata\n\n", &["\n"]),
        ("data: a\ndata\ndata: b\n\n", &["a\n\nb"]),
        ("id: 1\ndata: \nretry: 5\n\ndata: a\n\n", &["a"]),
        ("retry: 0\nid: x\ndata: a\n\n", &["a"]),
        ("data: a\n", &[]),
        ("data: a", &[]),
        ("data: a\n\ndata: b\n", &["a"]),
        ("event: ping\ndata: a\n\ndata: b\n\n", &["b"]),
        ("event: ping\nevent: message\ndata: a\n\n", &["a"]),
        ("event: ping\nevent\ndata: a\n\n", &["a"]),
        ("event: messages\ndata: a\n\nevent: message \ndata: b\n\n", &[]),
        ("event: ping\n\ndata: a\n\n", &["a"]),
        ("datas: a\ndat: b\n data: c\nData: d\ndata : e\nother: f\n\n", &[]),
        ("data: a: b\n\n", &["a: b"]),
        ("\n\n\r\n\rdata: a\n\n\n\n", &["a"]),
        ("data: \u{1f600}\u{e9}\n\n", &["\u{1f600}\u{e9}"]),
        ("data: a\0b\n\n", &["a\0b"]),
    ];

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut() {
        for (text, wanted) in CASES {
            let bytes = text.as_bytes();
            assert_eq!(events([bytes]).unwrap(), wanted, "{text:?}");
            assert_eq!(events(bytes.chunks(1)).unwrap(), wanted, "{text:?} byte by byte");
            for first in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(first);
                for second in 0..=tail.len() {
                    let (middle, tail) = tail.split_at(second);
                    assert_eq!(
                        events([head, middle, &[], tail]).unwrap(),
                        wanted,
                        "{text:?} cut at {first} and {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn half_a_mark_is_a_field_like_any_other() {
        assert!(events([&b"\xef\xbbdata: a\n\n"[..]]).unwrap().is_empty());
        assert_eq!(events([&b"\xef\n\ndata: a\n\n"[..]]).unwrap(), ["a"]);
    }

    #[test]
    fn the_answer_ends_the_reading() {
        let mut reader = Reader::new(AMPLE, AMPLE);
        let mut seen = 0;
        let flow = reader.push(b"data: no\n\ndata: yes\n\ndata: never\n\n", |data| {
            seen += 1;
            if data == b"yes" { ControlFlow::Break("found") } else { ControlFlow::Continue(()) }
        });
        assert_eq!(flow, Ok(ControlFlow::Break("found")));
        assert_eq!((seen, reader.take_answer()), (2, b"yes".to_vec()));
        // "data: no\n\n" whole, and "data: ", "\n\n" of the answer.
        assert_eq!(reader.other_bytes(), 10 + 8);
    }

    fn first_is_the_answer(reader: &mut Reader, bytes: &[u8]) -> Result<ControlFlow<()>, SseFault> {
        for chunk in bytes.chunks(3) {
            if reader.push(chunk, |_| ControlFlow::Break(()))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    #[test]
    fn the_answers_data_has_its_own_limit_and_equal_passes() {
        for (data, joined) in [("data: 12345\n", 5), ("data: 12\ndata: 45\n", 5), ("data\ndata: 2345\n", 5)] {
            let stream = format!("{data}\n");
            let mut equal = Reader::new(joined, AMPLE);
            assert_eq!(first_is_the_answer(&mut equal, stream.as_bytes()), Ok(ControlFlow::Break(())), "{data}");
            let mut one_past = Reader::new(joined - 1, AMPLE);
            let fault = Err(SseFault::EventTooLarge { limit: joined - 1 });
            // At once: the event is not yet complete.
            assert_eq!(first_is_the_answer(&mut one_past, data.as_bytes()), fault, "{data}");
            assert_eq!(first_is_the_answer(&mut one_past, b"data: 1\n\n"), fault);
        }
    }

    #[test]
    fn everything_else_has_a_second_limit_and_equal_passes() {
        let answer = "data: answer\n\n";
        for others in [": comment\n\n", "data: other\n\n", "id: 1\n", "\u{feff}", "event: ping\ndata: x\n\n", "\r\n"] {
            let cost = others.len() + "data: \n\n".len();
            let read = |limit: usize| {
                let mut reader = Reader::new(AMPLE, limit);
                let mut answered = false;
                let flow = reader.push((others.to_owned() + answer).as_bytes(), |data| {
                    answered |= data == b"answer";
                    if answered { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                flow.map(|_| answered)
            };
            assert_eq!(read(cost), Ok(true), "{others:?}");
            assert_eq!(read(cost - 1), Err(SseFault::StreamTooLarge { limit: cost - 1 }), "{others:?}");
        }
    }

    #[test]
    fn memory_is_bounded_by_the_limit_of_one_event() {
        let mut reader = Reader::new(1000, 1000);
        let endless = [b'x'; 4096];
        assert_eq!(reader.push::<()>(b"data:", |_| ControlFlow::Continue(())), Ok(ControlFlow::Continue(())));
        assert_eq!(
            reader.push::<()>(&endless, |_| ControlFlow::Continue(())),
            Err(SseFault::EventTooLarge { limit: 1000 })
        );
        assert!(reader.take_answer().capacity() <= 1000);
        let mut reader = Reader::new(1000, 1000);
        let name_without_end = reader.push::<()>(&endless, |_| ControlFlow::Continue(()));
        assert_eq!(name_without_end, Err(SseFault::StreamTooLarge { limit: 1000 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn sse_stream_sees_the_same_events(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "data", "data:", "data: ", "event", "event: ", "message", "ping", "id: 1", "retry: 9", ":", " ", "\n", "\n", "\n\n",
                    "\r", "\r\n", "a", "{}", "\u{feff}", "é", "x: y",
                ]),
                0..40,
            ),
            size in 1usize..9,
        ) {
            let bytes = parts.concat().into_bytes();
            let ours = events(bytes.chunks(size)).unwrap();
            prop_assert_eq!(&ours, &events([&bytes[..]]).unwrap());
            if let Some(theirs) = reference(&bytes) {
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn any_bytes_end_well(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..9) {
            prop_assert_eq!(events(bytes.chunks(size)), events([&bytes[..]]));
        }
    }
}
