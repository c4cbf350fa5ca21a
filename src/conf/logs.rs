//! Where the access log goes, as the conf names it.

use std::path::PathBuf;

use serde_json::Value as Json;

use super::{
    codec::text,
    read::{Codec, Reader},
    value::Value,
};
use crate::model::units::shown;

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard output.
    Stdout,
    /// Nowhere.
    Off,
    /// A file that is appended to.
    File(PathBuf),
}

/// `stdout`, `off` or a path. A lone word is neither a path nor a typo that makes a file.
pub(super) struct AccessLogs;
impl Codec for AccessLogs {
    type Out = AccessLog;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<AccessLog> {
        match text(reader, value)? {
            "stdout" => Some(AccessLog::Stdout),
            "off" => Some(AccessLog::Off),
            path if path.contains(['/', '.']) && !path.chars().any(char::is_control) => {
                reader.absolute(path, &value.span).map(AccessLog::File)
            }
            other => {
                let why = format!("must be `stdout`, `off` or a path, not `{}`", shown(other));
                reader.wrong_hint(&value.span, why, format!("a file of that name is `./{}`", shown(other)));
                None
            }
        }
    }
    fn write(out: &AccessLog) -> Json {
        match out {
            AccessLog::Stdout => Json::from("stdout"),
            AccessLog::Off => Json::from("off"),
            AccessLog::File(path) => Json::from(path.to_string_lossy()),
        }
    }
}
