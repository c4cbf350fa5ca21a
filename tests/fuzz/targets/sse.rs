//! The reader of event streams: whatever the pieces, the events are the same, and never larger than the limit.
//! The first two bytes of the input say how the rest is cut.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use toolgate::model::sse::{Reader, SseFault};

const EVENT_MAX: usize = 200;
const OTHER_MAX: usize = 2000;

fn read<'d>(pieces: impl Iterator<Item = &'d [u8]>) -> (Vec<Vec<u8>>, Option<SseFault>) {
    let mut reader = Reader::new(EVENT_MAX, OTHER_MAX);
    let mut events = Vec::new();
    for piece in pieces {
        let read = reader.push(piece, |data| {
            assert!(data.len() <= EVENT_MAX, "an event over the limit");
            events.push(data.to_vec());
            ControlFlow::<()>::Continue(())
        });
        if let Err(fault) = read {
            return (events, Some(fault));
        }
        assert!(reader.other_bytes() <= OTHER_MAX);
    }
    (events, None)
}

fuzz_target!(|data: &[u8]| {
    let [size, offset, stream @ ..] = data else { return };
    let whole = read(std::iter::once(stream));
    let (first, rest) = stream.split_at(usize::from(*offset).min(stream.len()));
    let pieces = read(std::iter::once(first).chain(rest.chunks(usize::from(*size).max(1))));
    assert_eq!(whole, pieces, "the pieces change the events");
    assert_eq!(whole, read(stream.chunks(1)), "byte by byte the events are others");
});
