//! The promises of the repair, for every stream of bytes.

use lapin::protocol::{AMQPClass, basic, parse_class};
use proptest::{collection::vec, prelude::*};

use super::{frames::Frames, payload::repair};

const HEADER_FRAME: u8 = 2;
const METHOD_FRAME: u8 = 1;

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind], &channel.to_be_bytes()[..], &size, payload, &[0xce]].concat()
}

fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// The payload of a content header with a table and all properties that are short strings.
fn content_header(table: &[u8], text: &[u8]) -> Vec<u8> {
    let mut payload = [&[0, 60], &[0; 10][..], &0b1110_0111_1111_1100_u16.to_be_bytes()].concat();
    payload.extend([short(text), short(text), long(table)].concat());
    for place in 0..9 {
        // Between the message id and the type is the timestamp.
        payload.extend(if place == 4 { vec![0xff; 8] } else { short(text) });
    }
    payload
}

/// Parses a payload as lapin does.
fn parses(kind: u8, payload: &[u8]) -> bool {
    match kind {
        METHOD_FRAME => parse_class(payload).is_ok_and(|(rest, _)| rest.is_empty()),
        _ => basic::parse_properties(&payload[12..]).is_ok_and(|(rest, _)| rest.is_empty()),
    }
}

fn repaired(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    repair(kind, &mut payload);
    payload
}

/// A value of a header, of each type that RabbitMQ knows.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop_oneof![
        (prop::sample::select(b"tbB".to_vec()), vec(any::<u8>(), 1)),
        (prop::sample::select(b"suU".to_vec()), vec(any::<u8>(), 2)),
        (prop::sample::select(b"iIf".to_vec()), vec(any::<u8>(), 4)),
        (prop::sample::select(b"lLdT".to_vec()), vec(any::<u8>(), 8)),
        (Just(b'D'), vec(any::<u8>(), 5)),
        (Just(b'V'), Just(Vec::new())),
        (prop::sample::select(b"Sx".to_vec()), vec(any::<u8>(), 0..20).prop_map(|bytes| long(&bytes))),
    ];
    plain.prop_map(|(tag, bytes)| [&[tag], &bytes[..]].concat()).prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            table(inner.clone()).prop_map(|table| [vec![b'F'], long(&table)].concat()),
            vec(inner, 0..4).prop_map(|values| [vec![b'A'], long(&values.concat())].concat()),
        ]
    })
}

fn table(value: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    vec((text(), value), 0..4)
        .prop_map(|entries| entries.into_iter().flat_map(|(name, value)| [short(&name), value].concat()).collect())
}

/// Text, or any bytes.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[aé€😀]{0,9}".prop_map(String::into_bytes), vec(any::<u8>(), 0..12)]
}

fn deliver(text: &[u8]) -> Vec<u8> {
    [&[0, 60, 0, 60], &short(text)[..], &[0; 9], &short(text), &short(text)].concat()
}

/// Frames as a broker sends them.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        (table(value()), text()).prop_map(|(table, text)| frame(HEADER_FRAME, 1, &content_header(&table, &text))),
        text().prop_map(|text| frame(METHOD_FRAME, 1, &deliver(&text))),
        vec(any::<u8>(), 0..300).prop_map(|body| frame(3, 1, &body)),
        Just(frame(8, 0, &[])),
    ];
    vec(one, 0..6).prop_map(|frames| frames.concat())
}

/// Reads chunks of these sizes into rooms of these sizes. Returns the bytes that pass.
fn read(mut sent: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut frames, mut got, mut sizes) = (Frames::default(), Vec::new(), sizes.iter().cycle());
    loop {
        let mut room = vec![0; *sizes.next().unwrap()];
        let passed = frames.pass(&mut room);
        if passed > 0 {
            got.extend_from_slice(&room[..passed]);
        } else if let Some(missing) = frames.missing() {
            let count = missing.len().min(room.len()).min(sent.len());
            missing[..count].copy_from_slice(&sent[..count]);
            sent = &sent[count..];
            frames.read(count);
        } else {
            let count = room.len().min(sent.len());
            if count == 0 {
                return got;
            }
            room[..count].copy_from_slice(&sent[..count]);
            sent = &sent[count..];
            let passed = frames.repair(&mut room[..count]);
            got.extend_from_slice(&room[..passed]);
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_broker_sends_can_be_parsed_in_chunks_of_any_size(
        sent in frames(), sizes in vec(1_usize..200, 1..8),
    ) {
        let got = read(&sent, &sizes);
        prop_assert_eq!(got.len(), sent.len());
        prop_assert_eq!(&read(&got, &sizes), &got, "it is repaired already");
        prop_assert_eq!(&read(&sent, &[1 << 20]), &got, "chunks make no difference");
        let mut rest = &got[..];
        while let [kind, _, _, a, b, c, d, frame @ ..] = rest {
            let (payload, after) = frame.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
            prop_assert!(!matches!(*kind, HEADER_FRAME | METHOD_FRAME) || parses(*kind, payload), "{payload:?}");
            rest = &after[1..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn what_can_be_parsed_stays_as_it_is(text in "[aé€😀]{0,9}", table in table(value())) {
        for (kind, payload) in [(HEADER_FRAME, content_header(&table, text.as_bytes())), (METHOD_FRAME, deliver(text.as_bytes()))] {
            if parses(kind, &payload) {
                prop_assert_eq!(repaired(kind, &payload), payload);
            }
        }
    }

    #[test]
    fn no_byte_of_garbage_is_lost_or_added(sent in vec(any::<u8>(), 0..2_000), sizes in vec(1_usize..50, 1..4)) {
        prop_assert_eq!(read(&sent, &sizes).len(), sent.len());
        for kind in [HEADER_FRAME, METHOD_FRAME] {
            prop_assert_eq!(repaired(kind, &sent).len(), sent.len());
            prop_assert_eq!(read(&frame(kind, 1, &sent), &sizes).len(), sent.len() + 8);
        }
    }
}

#[test]
fn each_byte_that_is_not_utf8_is_replaced_and_no_other() {
    let (odd, read) = (b"caf\xe9 \xe2\x82 \xe2\x82\xac\xf0\x9f".as_slice(), "caf? ?? €??".as_bytes());
    let of = |text: &[u8]| content_header(&[short(text), b"S\0\0\0\x01\xff".to_vec()].concat(), text);
    assert!(!parses(HEADER_FRAME, &of(odd)));
    assert_eq!(repaired(HEADER_FRAME, &of(odd)), of(read), "not the header's value, which may be any bytes");
    assert!(parses(HEADER_FRAME, &of(read)));
    let (_, class) = parse_class(repaired(METHOD_FRAME, &deliver(b"\xff.\xff")).as_slice()).unwrap();
    let AMQPClass::Basic(basic::AMQPMethod::Deliver(deliver)) = class else { panic!("{class:?}") };
    assert_eq!(deliver.routing_key.as_str(), "?.?");
    for head in [&[0, 10, 0, 50, 2, 24][..], &[0, 20, 0, 40, 2, 24], &[0, 10, 0, 60]] {
        let reason = |text: &[u8]| {
            let ids: &[u8] = if head.len() > 4 { &[0; 4] } else { &[] };
            [head, &short(text), ids].concat()
        };
        assert_eq!(repaired(METHOD_FRAME, &reason(b"no queue '\xc3")), reason(b"no queue '?"), "{head:?}");
        assert!(parses(METHOD_FRAME, &reason(b"no queue '?")));
    }
}

#[test]
fn tables_that_are_nested_too_deeply_become_bytes() {
    for tag in [b'F', b'A'] {
        let mut table = Vec::new();
        for _ in 0..10_000 {
            let entry = [vec![tag], long(&table)].concat();
            table = if tag == b'F' { [short(b""), entry].concat() } else { entry };
        }
        if tag == b'A' {
            table = [short(b"array"), table].concat();
        }
        let payload = content_header(&table, b"fine");
        let repaired = repaired(HEADER_FRAME, &payload);
        assert_eq!(repaired.iter().zip(&payload).filter(|(one, other)| one != other).count(), 1, "one type");
        assert!(parses(HEADER_FRAME, &repaired));
    }
}

#[test]
fn a_broker_without_a_limit_of_frames_proposes_one() {
    let tune = |frame_max: u32| [&[0, 10, 0, 30, 7, 255], &frame_max.to_be_bytes()[..], &[0, 60]].concat();
    for (proposed, accepted) in
        [(0, 131_072), (u32::MAX, 262_144), (262_145, 262_144), (262_144, 262_144), (131_072, 131_072)]
    {
        assert_eq!(repaired(METHOD_FRAME, &tune(proposed)), tune(accepted));
    }
}
