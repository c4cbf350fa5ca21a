//! Credentials as the policy names them: which headers may carry one, and where a secret is to be read from.
//!
//! A secret itself never stands in a policy: what is no reference is a fault, and its place is hidden in every report.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Value as Json, json};

use super::{
    codec::{Opt, judged},
    measure::FilePath,
    read::{Codec, Form, Member, Reader, Written, members, read_form, schema_of, write_form},
    value::{Node, Value},
};
use crate::model::{records::SecretRef, units::shown};

/// The most headers that may carry a server's credential (contract §9).
pub const CREDENTIAL_HEADERS_MAX: usize = 8;

/// The longest name of such a header, in bytes.
pub const CREDENTIAL_HEADER_NAME_MAX: usize = 128;

/// Headers that the gateway or HTTP itself owns, in lower case; a `*` stands for any rest.
const RESERVED: [&str; 24] = [
    "host",
    "content-*",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-*",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept",
    "accept-encoding",
    "origin",
    "mcp-*",
    "last-event-id",
    "forwarded",
    "x-forwarded-*",
    "x-real-ip",
    "x-request-id",
    "traceparent",
    "tracestate",
    "baggage",
    "x-toolgate-*",
    "http2-settings",
];

/// Judges the name of a header that is to carry a credential.
///
/// # Errors
/// What is wrong with it, as said after the name.
pub fn judge_header(name: &str) -> Result<(), String> {
    if name.len() > CREDENTIAL_HEADER_NAME_MAX || http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err("is no header name".into());
    }
    let lower = name.to_ascii_lowercase();
    let reserved = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => lower.starts_with(prefix),
        None => lower == pattern,
    };
    if RESERVED.iter().any(|pattern| reserved(pattern)) {
        return Err("is reserved and cannot carry a credential".into());
    }
    Ok(())
}

/// Where a secret is to be read from: `{ env }`, `{ file }` or `{ credential }`; through the API only the last.
pub(super) struct Secret;
impl Codec for Secret {
    type Out = SecretRef;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<SecretRef> {
        let forms = if reader.is_api() {
            "`{ credential = NAME }`"
        } else {
            "`{ env = NAME }`, `{ file = PATH }` or `{ credential = NAME }`"
        };
        let Node::Table(table) = &value.node else {
            reader.wrong(&value.span, format!("must be {forms}: a secret never stands in the policy itself"));
            reader.hide(&value.span);
            return None;
        };
        let (kind, before) = (format!("`{}`", reader.label()), reader.faults.len());
        let (form, _) = read_form::<SecretForm>(reader, &Written { table, span: value.span.clone(), kind: &kind });
        if reader.faults.len() > before {
            // Whatever was put here may be the secret.
            reader.hide(&value.span);
            return None;
        }
        match (form.env, form.file, form.credential) {
            (None, None, Some(name)) => Some(SecretRef::Credential(name)),
            (Some(name), None, None) if !reader.is_api() => Some(SecretRef::Env(name)),
            (None, Some(path), None) if !reader.is_api() => Some(SecretRef::File(path)),
            _ => {
                reader.wrong(&value.span, format!("must be {forms}"));
                None
            }
        }
    }
    fn write(out: &SecretRef) -> Json {
        let mut form = SecretForm::blank();
        match out {
            SecretRef::Env(name) => form.env = Some(name.clone()),
            SecretRef::File(path) => form.file = Some(path.clone()),
            SecretRef::Credential(name) => form.credential = Some(name.clone()),
        }
        write_form(&form)
    }
    fn schema() -> Json {
        schema_of::<SecretForm>()
    }
}

struct SecretForm {
    env: Option<String>,
    file: Option<PathBuf>,
    credential: Option<String>,
}

impl Form for SecretForm {
    const MEMBERS: &'static [Member<Self>] = members! {
        env: Opt<Variable>;
        file: Opt<FilePath>;
        credential: Opt<CredentialName>;
    };
    fn blank() -> Self {
        Self { env: None, file: None, credential: None }
    }
}

/// The name of an environment variable.
struct Variable;
impl Codec for Variable {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(reader, value, |name| {
            let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if begins_well && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
                Ok(name.to_owned())
            } else {
                Err("must be the name of an environment variable, of letters, digits and `_`".into())
            }
        })
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// The name of a credential: a file name in `$CREDENTIALS_DIRECTORY` or `admin.secrets`, so nothing that leads elsewhere.
struct CredentialName;
impl Codec for CredentialName {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(reader, value, |name| {
            let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
            if !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name.bytes().all(plain) {
                Ok(name.to_owned())
            } else {
                Err("must be the name of a credential: 1 to 255 of [A-Za-z0-9._-], not beginning with `.`".into())
            }
        })
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// `credential`: header names and where their values are to be read from.
pub(super) struct Headers;
impl Codec for Headers {
    type Out = BTreeMap<String, SecretRef>;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Self::Out> {
        let Node::Table(table) = &value.node else {
            reader.wrong(&value.span, "must be a table of headers, such as `{ Authorization = { env = NAME } }`");
            reader.hide(&value.span);
            return None;
        };
        let mut headers = BTreeMap::new();
        let mut seen: Vec<String> = Vec::new();
        for entry in &table.0 {
            let lower = entry.name.to_ascii_lowercase();
            let name = shown(&entry.name);
            if let Err(why) = judge_header(&entry.name) {
                reader.wrong(&entry.at, format!("names the header `{name}`: it {why}"));
            } else if seen.contains(&lower) {
                reader.wrong(&entry.at, format!("names the header `{name}` twice"));
            }
            seen.push(lower);
            if matches!(entry.value.node, Node::Faulty) {
                continue;
            }
            if let Some(secret) = reader.within(&name, |reader| Secret::read(reader, &entry.value)) {
                headers.insert(entry.name.clone(), secret);
            }
        }
        if table.0.len() > CREDENTIAL_HEADERS_MAX {
            let why = format!("has {} headers; {CREDENTIAL_HEADERS_MAX} are the most", table.0.len());
            reader.wrong(&value.span, why);
        }
        Some(headers)
    }
    fn write(out: &Self::Out) -> Json {
        Json::Object(out.iter().map(|(name, secret)| (name.clone(), Secret::write(secret))).collect())
    }
    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": Secret::schema(), "maxProperties": CREDENTIAL_HEADERS_MAX })
    }
}

/// Header prefix of the attribution, such as `X-Toolgate-`.
pub(super) struct Prefix;
impl Codec for Prefix {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(reader, value, |prefix| {
            let token = prefix.len() <= 64 && http::HeaderName::from_bytes(prefix.as_bytes()).is_ok();
            if !token || !prefix.ends_with('-') || prefix.starts_with('-') {
                return Err("must be the beginning of a header name, ending in `-`, such as `X-Toolgate-`".into());
            }
            let own = prefix.eq_ignore_ascii_case("X-Toolgate-");
            if !own && judge_header(&format!("{prefix}user")).is_err() {
                return Err("is a prefix of reserved headers".into());
            }
            Ok(prefix.to_owned())
        })
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{CREDENTIAL_HEADER_NAME_MAX, judge_header};

    #[test]
    fn reserved_and_invalid_headers_carry_no_credential() {
        for name in [
            "Host",
            "Content-Length",
            "content-x",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "Proxy-Authorization",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Accept",
            "Accept-Encoding",
            "Origin",
            "Mcp-Session-Id",
            "MCP-Protocol-Version",
            "Last-Event-ID",
            "Forwarded",
            "X-Forwarded-For",
            "X-Real-IP",
            "X-Request-Id",
            "traceparent",
            "tracestate",
            "baggage",
            "X-Toolgate-User",
            "x-TOOLGATE-anything",
            "",
            " ",
            "A B",
            "A:",
            "A\r\nB",
            "X-\u{212a}ey",
            "é",
        ] {
            assert!(judge_header(name).is_err(), "{name:?}");
        }
        for name in ["Authorization", "X-Api-Key", "Cookie", "PRIVATE-TOKEN", "Hosts", "Acceptance", "X-Mcp-Key"] {
            assert_eq!(judge_header(name), Ok(()), "{name}");
        }
        assert_eq!(judge_header(&"a".repeat(CREDENTIAL_HEADER_NAME_MAX)), Ok(()));
        assert!(judge_header(&"a".repeat(CREDENTIAL_HEADER_NAME_MAX + 1)).is_err());
    }
}
