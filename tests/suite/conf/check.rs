//! `toolgate check`: for a person on standard error, with `--json` for a program on standard output; the same faults, the same exit code.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value as Json, json};

use crate::support::{gateway::Gateway, run, upstream::Upstream};

/// A conf and a policy file, and each fault of them: severity, code, place, and how the message and the hint begin.
type Row =
    (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str, &'static str, &'static str)]);

const HOME: &str = "[[organization]]\nid = 'acme'\nplan = 'business'\nstatus = 'active'\nsubscription = 'active'\n\
                    [[project]]\nid = 'p'\n";

/// Policies begin after [`HOME`], at line 8.
const ROWS: &[Row] = &[
    ("", "", &[]),
    (
        "[limits]\nin_fligth = 7",
        "",
        &[(
            "error",
            "unknown_member",
            "toolgate.toml:2:1",
            "unknown member `in_fligth` in [limits]",
            "did you mean `in_flight`",
        )],
    ),
    (
        "[limits]\nin_flight = 'many'",
        "",
        &[("error", "invalid_value", "toolgate.toml:2:13", "`limits.in_flight` must be", "")],
    ),
    ("[limits", "", &[("error", "invalid_toml", "toolgate.toml:1:8", "", "")]),
    (
        "[policy]\nfiles = ['nope/*.toml']",
        "",
        &[("warning", "invalid_value", "toolgate.toml:2:10", "`policy.files`: nothing matches", "")],
    ),
    ("", "[[server]]\nslug = 'a'", &[("error", "missing_member", "policy.toml:8:1", "[[server]] lacks `url`", "")]),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'https://a.example/mcp'\n[[server]]\nslug = 'a'\nurl = 'https://b.example/mcp'",
        &[("error", "duplicate", "policy.toml:12:8", "server `a` is there twice", "the first is at")],
    ),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'https://a.example/mcp'\nprojects = ['q', 'p']",
        &[("error", "unknown_reference", "policy.toml:11:13", "server `a` names project `q`", "did you mean `p`")],
    ),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'https://10.0.0.1/mcp'",
        &[("error", "invalid_mcp_server_url", "policy.toml:8:1", "server `a`: url: ", "`egress.allow_http`")],
    ),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'http://a.example/mcp'",
        &[("error", "invalid_mcp_server_url", "policy.toml:10:7", "the URL of server `a` begins with `http://`", "")],
    ),
    (
        "[attribution]\nprefix = 'X-Acme-'",
        "[[server]]\nslug = 'a'\nurl = 'https://a.example/mcp'\ncredential = { X-Acme-User = { env = 'HOME' } }",
        &[("error", "invalid_mcp_credential", "policy.toml:11:14", "server `a` has its credential in", "")],
    ),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'ftp://a.example/mcp'\ncredential = { Host = { env = 'HOME' } }",
        &[
            ("error", "invalid_mcp_server_url", "policy.toml:10:7", "`url` ", ""),
            ("error", "invalid_mcp_credential", "policy.toml:11:16", "`credential` names the header `Host`", ""),
        ],
    ),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'https://a.example/mcp'\n[[key]]\nid = 'k'\nproject = 'p'\nenvironment = 'e'\nrevoked = true\n\
         sha256 = '1111111111111111111111111111111111111111111111111111111111111111'\n[[grant]]\nkey = 'k'\nserver = 'a'\naccess = 'read'",
        &[("warning", "key_revoked", "policy.toml:18:7", "key `k` is revoked", "")],
    ),
    (
        "",
        "[[server]]\nslug = 'a'\nurl = 'https://a.example/mcp'\n[[key]]\nid = 'k'\nproject = 'p'\nenvironment = 'e'\n\
         sha256 = '1111111111111111111111111111111111111111111111111111111111111111'\n[[grant]]\nkey = 'k'\nserver = 'a'\naccess = 'write'\n\
         [[approval]]\nserver = 'a'\ntool = 't'\nlabels = ['private_data', 'untrusted_content', 'sends_out']\n\
         sha256 = '2222222222222222222222222222222222222222222222222222222222222222'",
        &[("error", "mcp_trifecta_unconfirmed", "policy.toml:16:1", "key `k`", "if that is meant")],
    ),
    // Several, in the order of files and places.
    (
        "[limits]\nin_flight = 'many'\nheaders = 7",
        "[[project]]\nid = 7\n[[nope]]",
        &[
            ("error", "invalid_value", "toolgate.toml:2:13", "", ""),
            ("error", "invalid_value", "toolgate.toml:3:11", "", ""),
            ("error", "invalid_value", "policy.toml:9:6", "", ""),
            ("error", "unknown_member", "policy.toml:10:3", "", ""),
        ],
    ),
];

struct Folder(PathBuf);

impl Folder {
    fn make(number: usize, conf: &str, policy: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("toolgate-check-{number}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("toolgate.toml"), conf).unwrap();
        fs::write(folder.join("policy.toml"), format!("{HOME}{policy}")).unwrap();
        Self(folder)
    }

    fn conf(&self) -> PathBuf {
        self.0.join("toolgate.toml")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn toolgate(words: &[&str], conf: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toolgate")).args(words).arg("--conf").arg(conf).output().unwrap()
}

/// What `--json` prints, once it is seen that the plain form has the same faults.
fn faults(conf: &Path, is_faulty: bool) -> Vec<Json> {
    let code = Some(if is_faulty { 78 } else { 0 });
    let (plain, printed) = (toolgate(&["check"], conf), toolgate(&["check", "--json"], conf));
    assert_eq!((plain.status.code(), printed.status.code()), (code, code), "{plain:?}\n{printed:?}");
    assert!(plain.stdout.is_empty() && printed.stderr.is_empty(), "{plain:?}\n{printed:?}");
    assert_eq!(toolgate(&["-t", "--json"], conf).stdout, printed.stdout, "short for the same");
    let json: Json = serde_json::from_slice(&printed.stdout).unwrap();
    let faults = json["faults"].as_array().unwrap().clone();
    let text = String::from_utf8(plain.stderr).unwrap();
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains(": error: ") || line.contains(": warning: ")).collect();
    for (fault, line) in faults.iter().zip(&lines) {
        let of = |name: &str| fault[name].to_string().trim_matches('"').to_owned();
        let expected = format!("{}:{}:{}: {}: ", of("file"), of("line"), of("column"), of("severity"));
        assert!(line.starts_with(&expected), "{line}\n{fault}");
    }
    assert_eq!(faults.len(), lines.len(), "{text}");
    assert_eq!(text.ends_with(": ok\n"), !is_faulty, "{text}");
    faults
}

#[test]
fn each_fault_has_a_code_and_a_place_for_programs() {
    let mut codes = BTreeSet::new();
    for (number, (conf, policy, expected)) in ROWS.iter().enumerate() {
        let folder = Folder::make(number, conf, policy);
        let found = faults(&folder.conf(), expected.iter().any(|(severity, ..)| *severity == "error"));
        let shown = format!("{conf}\n{policy}\n{found:#?}");
        assert_eq!(found.len(), expected.len(), "{shown}");
        for (fault, (severity, code, place, message, hint)) in found.iter().zip(*expected) {
            let (file, at) = place.split_once(':').unwrap();
            let text = |name: &str| fault[name].as_str().unwrap_or_default();
            assert_eq!((text("severity"), text("code")), (*severity, *code), "{shown}");
            assert_eq!(format!("{}:{}", fault["line"], fault["column"]), at, "{shown}");
            assert_eq!(Path::new(text("file")), folder.0.join(file), "{shown}");
            assert!(text("message").starts_with(message) && text("hint").starts_with(hint), "{shown}");
            assert_eq!(fault.as_object().unwrap().len(), 7, "{shown}");
            codes.insert(text("code").to_owned());
        }
    }
    // What cannot be read has no place in it.
    let missing = toolgate(&["check", "--json"], Path::new("/nowhere/toolgate.toml"));
    let json: Json = serde_json::from_slice(&missing.stdout).unwrap();
    let fault = &json["faults"][0];
    assert_eq!((missing.status.code(), &fault["code"]), (Some(78), &json!("unreadable_file")), "{json}");
    assert_eq!([&fault["file"], &fault["line"], &fault["column"], &fault["hint"]], [&Json::Null; 4], "{json}");
    codes.insert("unreadable_file".to_owned());
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")).unwrap();
    let known = docs.lines().find(|line| line.starts_with("`code` is one of")).unwrap();
    let known: BTreeSet<String> = known.split('`').skip(3).step_by(2).map(str::to_owned).collect();
    assert_eq!(codes, known, "each code occurs and is in docs/operations.md");
}

#[test]
fn check_names_the_limits_that_cannot_be_leased() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        for (url, limit, named) in
            [("redis://127.0.0.1:1", 31, true), ("redis://127.0.0.1:1", 32, false), ("", 31, false)]
        {
            let gateway = Gateway::new().server_with("demo", &up, &format!("rate_limit = '{limit}/min'"));
            let gateway = gateway.key("ann", &format!("rate_limit = '{limit}/s'"));
            let gw = gateway.conf(&format!("[rate_limits]\nurl = '{url}'")).start();
            let output = toolgate(&["check"], &gw.folder().join("toolgate.toml"));
            assert!(output.status.success());
            let said = String::from_utf8(output.stderr).unwrap();
            for who in ["key `ann`, 31/s", "server `demo`, 31/min"] {
                assert_eq!(said.contains(&format!("the rate limit of {who}, is too small to lease")), named, "{said}");
            }
        }
    });
}
