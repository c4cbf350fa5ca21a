//! The credential that the gateway holds never comes back, however it is written.

use crate::{
    model::jsonrpc::Document,
    policy::guard::{CREDENTIAL_BYTES_MAX, CredentialMask, MaskFault, apply_edits},
};

use super::cases::expand;

fn mask(value: &str) -> CredentialMask {
    CredentialMask::new([value.as_bytes()]).unwrap()
}

/// A text as a JSON string, without its quotes.
fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Every byte percent-encoded that is no letter or digit.
fn percent(text: &str) -> String {
    let write = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(write).collect()
}

#[test]
fn the_credential_we_hold_is_found_in_every_encoding() {
    use base64::Engine as _;
    let token = expand("{alnum:21}+/&\"{alnum:9}", 9).0;
    let mask = mask(&format!("Bearer {token}"));
    let standard = base64::engine::general_purpose::STANDARD;
    let url = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let each = |write: &dyn Fn(u8) -> String| token.bytes().map(write).collect::<String>();
    let mut echoes = vec![
        token.clone(),
        format!("Bearer {token}"),
        each(&|byte| format!("{byte:02x}")),
        each(&|byte| format!("{byte:02X}")),
        each(&|byte| format!("%{byte:02x}")),
        each(&|byte| format!("%{byte:02X}")),
        percent(&token),
        percent(&percent(&token)),
        json(&json(&token)),
        json(&json(&json(&token))),
        percent(&json(&token)),
        percent(&json(&json(&token))),
        json(&percent(&token)),
        each(&|byte| json(&json(&format!("\\u{byte:04x}")))),
        each(&|byte| format!("\\x{byte:02x}")),
        each(&|byte| format!("&#{byte};")),
        each(&|byte| format!("&#x{byte:x};")),
        percent(&each(&|byte| format!("&#{byte};"))),
        each(&|byte| format!("\\u{byte:04x}")),
        each(&|byte| format!("\\u{byte:04X}")),
        each(&|byte| if byte == b'a' { "\\u0061".to_owned() } else { char::from(byte).to_string() }),
        token.replace('/', "\\/").replace('"', "\\\""),
        each(&|byte| format!("\\u0025{byte:02x}")),
        token.replace('&', "&amp;").replace('"', "&quot;"),
        token.replace('&', "&amp;").replace('"', "&#34;"),
        format!("Bearer+{token}"),
    ];
    for before in ["", "a", "ab", "abc", "Authorization: Bearer "] {
        for after in ["", "x", "\r\n"] {
            echoes.push(standard.encode(format!("{before}{token}{after}")));
            echoes.push(url.encode(format!("{before}{token}{after}")));
        }
    }
    for echo in &echoes {
        let text = format!("said: {echo} end");
        let masked = mask.mask_text(&text).unwrap_or_else(|| panic!("not found: {echo}"));
        assert!(
            masked.contains("[redacted:credential]") && masked.starts_with("said: ") && masked.ends_with(" end"),
            "{masked}"
        );
        let left = masked.replace("[redacted:credential]", "");
        assert!(left.len() < "said:  end".len() + 12 || echo.len() > 60, "{echo}: {left}");
        let raw = serde_json::to_string(&serde_json::json!({ "a": [text.clone()], text: 1 })).unwrap();
        let mut scratch = Vec::new();
        let parsed = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
        let edits = mask.edits(&parsed, &parsed.spanned_root());
        let out = String::from_utf8(apply_edits(raw.as_bytes(), 0..raw.len(), &edits)).unwrap();
        assert_eq!((edits.len(), out.matches("[redacted:credential]").count()), (2, 2), "{out}");
        assert!(mask.mask_text(&out).is_none());
    }
    assert_eq!(mask.mask_text("nothing of the kind"), None);
    assert_eq!(mask.mask_bytes(format!("\u{1}{token}").as_bytes()).unwrap(), "\u{1}[redacted:credential]".as_bytes());
    let mut broken = vec![0xff];
    broken.extend_from_slice(token.as_bytes());
    assert!(mask.mask_bytes(&broken).unwrap().ends_with(b"[redacted:credential]"));
    assert_eq!(format!("{mask:?}"), "CredentialMask(…)");
}

#[test]
fn basic_credentials_are_found_decoded_and_short_ones_only_where_they_stand_alone() {
    let basic = mask(&expand("Basic {b64of:bob:hunter2hunter2}", 1).0);
    assert_eq!(basic.mask_text("pw hunter2hunter2!").as_deref(), Some("pw [redacted:credential]!"));
    let short = mask("SK_zz93");
    assert_eq!(short.mask_text("bad key SK_zz93.").as_deref(), Some("bad key [redacted:credential]."));
    assert_eq!(short.mask_text("ASK_zz93x"), None);
    let tiny = mask("abc");
    assert_eq!((tiny.mask_text("abc").as_deref(), tiny.mask_text("an abc")), (Some("[redacted:credential]"), None));
    let number = mask("1234567890");
    let raw = br#"{"n":1234567890}"#;
    let mut scratch = Vec::new();
    let parsed = Document::parse(raw, &mut scratch).unwrap();
    let edits = number.edits(&parsed, &parsed.spanned_root());
    assert_eq!(apply_edits(raw, 0..raw.len(), &edits), br#"{"n":"[redacted:credential]"}"#);
    let none = CredentialMask::new([]).unwrap();
    assert!(none.is_empty() && none.mask_text("x").is_none() && none.edits(&parsed, &parsed.spanned_root()).is_empty());
}

#[test]
fn a_credential_that_reads_as_if_it_were_escaped_is_found_in_what_has_escapes() {
    for token in [r"tok%41&amp;en\n99-%2541", "%7Btoken%7D-0123456789", r"\\u0041bcdefgh12"] {
        let mask = mask(token);
        for echo in [token.to_owned(), json(token), percent(token), json(&percent(token)), percent(&json(&json(token)))]
        {
            for text in [format!("it is {echo} indeed"), format!("\\n%20&lt; {echo} \\n%20&lt;")] {
                assert!(mask.mask_text(&text).is_some_and(|masked| !masked.contains(&echo)), "{token}: {text}");
            }
        }
    }
}

#[test]
fn a_mask_that_cannot_be_made_is_an_error() {
    let half = vec![b'x'; CREDENTIAL_BYTES_MAX / 2];
    assert!(CredentialMask::new([&half[..], &half[..]]).is_ok());
    assert_eq!(CredentialMask::new([&half[..], &half[..], b"x"]).err(), Some(MaskFault));
    let all = CredentialMask::of_everything();
    let raw = br#"{"a":["b",1,true]}"#;
    let mut scratch = Vec::new();
    let parsed = Document::parse(raw, &mut scratch).unwrap();
    let edits = all.edits(&parsed, &parsed.spanned_root());
    assert!(!all.is_empty() && edits.len() == 3 && all.mask_text("x").as_deref() == Some("[redacted:credential]"));
}
