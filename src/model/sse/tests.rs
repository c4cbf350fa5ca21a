//! Every cut of a stream gives the same events, and every limit holds.
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
                assert_eq!(events([head, middle, &[], tail]).unwrap(), wanted, "{text:?} cut at {first} and {second}");
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
