//! `toolgate credential`: what a server with `credential_mode = "per_user"` is called with for a user. A value comes from standard
//! input or a file, never from the command line, which every process of the machine can read.

use std::{
    fs::File,
    io::{IsTerminal as _, Read},
    process::ExitCode,
};

use clap::Subcommand;
use serde_json::{Map, Value as Json};

use super::{
    client::{Api, Failure, path, put},
    print::Out,
};

/// Commands on the credentials of users.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the users whose credentials a server holds, without the credentials.
    List {
        /// The server's slug.
        slug: String,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Store a user's credential, or replace it: the next call for the user goes out with it.
    Set {
        #[command(flatten)]
        named: Named,
        /// A header whose value is read from standard input, or with =FILE from that file; a line end at its end is left out.
        /// May be repeated.
        #[arg(long = "header", value_name = "NAME[=FILE]", required = true)]
        headers: Vec<String>,
    },
    /// Forget a user's credential: calls for the user are refused from then on.
    Delete(Named),
}

/// A user of a server.
#[derive(Debug, clap::Args)]
pub(super) struct Named {
    /// The server's slug.
    slug: String,
    /// The user, as the attribution header names it.
    user: String,
    /// Needed where several organizations have that slug.
    #[arg(long)]
    organization: Option<String>,
}

impl Named {
    fn path(&self) -> String {
        path(&["servers", &self.slug, "credentials", &self.user], self.organization.as_deref())
    }
}

const COLUMNS: [(&str, &str); 4] =
    [("SERVER", "/server"), ("USER", "/user"), ("HEADERS", "/headers"), ("STORED", "/stored")];
/// The longest value that is read, in bytes: more than the API takes.
const VALUE_BYTES_MAX: u64 = 1 << 20;

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { slug, organization } => {
            let list = path(&["servers", slug, "credentials"], organization.as_deref());
            out.list("credentials", &api.list(&list, "credentials")?, &COLUMNS)
        }
        Command::Set { named, headers } => {
            let mut body = Map::new();
            put(&mut body, "headers", Some(read_all(headers)?));
            out.object(&api.put(&named.path(), &body)?)
        }
        Command::Delete(named) => out.object(&api.delete(&named.path())?),
    }
}

/// The headers that were named, each with the value that was read for it.
fn read_all(headers: &[String]) -> Result<Json, Failure> {
    if headers.iter().filter(|header| !header.contains('=')).count() > 1 {
        let why = "standard input holds the value of one --header: name files for the others, NAME=FILE";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut read = Map::new();
    for header in headers {
        let (name, value) = match header.split_once('=') {
            Some((name, file)) => (name, from_file(file)),
            None => (header.as_str(), from_input()),
        };
        let value = value.map_err(|why| Failure::Usage(format!("--header {name}: {why}")))?;
        if read.insert(name.to_owned(), Json::from(value)).is_some() {
            return Err(Failure::Usage(format!("--header {name} is given twice")));
        }
    }
    Ok(Json::Object(read))
}

fn from_file(file: &str) -> Result<String, String> {
    let opened = File::open(file).map_err(|why| format!("{file}: {why}"))?;
    value(opened).map_err(|why| format!("{file}: {why}"))
}

fn from_input() -> Result<String, String> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err("the value is read from standard input, and a terminal would show it: pipe it in, or name a file, NAME=FILE".to_owned());
    }
    value(input.lock()).map_err(|why| format!("standard input: {why}"))
}

/// A value to its end, without the line end that editors and `echo` put there. No message repeats it.
fn value(from: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    from.take(VALUE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > VALUE_BYTES_MAX {
        return Err(format!("it is longer than {VALUE_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::{VALUE_BYTES_MAX, value};

    #[test]
    fn a_value_is_read_to_its_end_without_a_line_end() {
        let long = vec![b'x'; usize::try_from(VALUE_BYTES_MAX).unwrap_or(0) + 1];
        let rows: [(&[u8], Result<&str, &str>); 8] = [
            (b"Bearer x", Ok("Bearer x")),
            (b"Bearer x\n", Ok("Bearer x")),
            (b"Bearer x\r\n", Ok("Bearer x")),
            (b"Bearer x\n\n", Ok("Bearer x\n")),
            (b" x ", Ok(" x ")),
            (b"\n", Err("it is empty")),
            (b"\xff", Err("it is not UTF-8")),
            (&long, Err("it is longer than 1048576 bytes")),
        ];
        for (bytes, expected) in rows {
            let read = value(bytes);
            assert_eq!(read.as_deref().map_err(String::as_str), expected);
        }
    }
}
