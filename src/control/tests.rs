//! The writer by itself: what a refused change leaves alone, and what two nodes make of one store.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use super::{
    Catalog, ChangeError, Control, Kept as _,
    change::{Asker, Change, Confirm, Heard, ToolName},
};
use crate::{
    conf::{self, policy::server_from_json},
    model::{
        mcp::Revision,
        pin::Pin,
        records::{Access, ApprovalStatus, Class, Decision, Definition, Grant, Label, Project, Server, ToolRecord},
    },
    policy::{
        approval::{ListedTool, ToolState},
        compile::Handles,
        live::Live,
        snapshot::ToolPolicy,
    },
    store::{Store, Write},
    upstream::{
        client::Client,
        dns::Resolver,
        server::{Registry, Upstream},
        sessions::{SessionLimits, Sessions},
    },
};

const POLICY: &str = "
[[organization]]
id = 'acme'
plan = 'business'
status = 'active'
subscription = 'active'
[[project]]
id = 'support'
[[project]]
id = 'sales'
[[key]]
id = 'bot'
project = 'support'
environment = 'production'
sha256 = '1111111111111111111111111111111111111111111111111111111111111111'
";

mod batch;

/// A folder of this test alone.
struct Dir(PathBuf);

impl Dir {
    fn make(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("toolgate-control-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    async fn control(&self) -> Control {
        let files = [("conf.toml", "[policy]\nfiles = ['policy.toml']"), ("policy.toml", POLICY)];
        let loaded = conf::from_texts(&files, &|_| None).into_loaded().unwrap();
        let client = Arc::new(Client::new(Resolver::table([])));
        let handles = Handles::new(Registry::new(Sessions::new(client, SessionLimits::default())));
        let store = Store::open(&format!("sqlite:{}/store.db", self.0.display())).await.unwrap();
        let started = Control::start(
            (Path::new("conf.toml"), loaded),
            Arc::new(Live::default()),
            (store, handles, Instant::now()),
        );
        started.await.unwrap().0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server(slug: &str, projects: &[&str]) -> Server {
    let json = serde_json::json!({
        "organization": "acme", "slug": slug, "url": format!("https://{slug}.example/mcp"), "projects": projects
    });
    server_from_json(&json).unwrap()
}

fn heard(tools: &[&str]) -> Heard {
    let tool = |name: &&str| {
        let json = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let sha256 = Pin::of_definition(json.as_bytes()).unwrap();
        ListedTool { name: (*name).to_owned(), definition: Definition { sha256, json: json.into() }, fault: None }
    };
    Heard { revision: Revision::MODERN, tools: tools.iter().map(tool).collect(), dropped: 0 }
}

async fn apply(control: &Control, change: Change) -> Result<Arc<Catalog>, ChangeError> {
    control.apply(&change, &Asker::default()).await
}

/// A server with a tool for each leg, granted to the key, outside the key's project.
async fn all_but_closed(control: &Control) {
    let register = Change::Register { server: server("all", &["sales"]), heard: heard(&["a", "b", "c"]) };
    apply(control, register).await.unwrap();
    for (tool, label) in [("a", Label::PrivateData), ("b", Label::UntrustedContent), ("c", Label::SendsOut)] {
        let name = ToolName { organization: None, server: "all".to_owned(), tool: tool.to_owned() };
        let expected = control.catalog().tool(&name).unwrap().1.current.as_ref().unwrap().sha256;
        let approve = Change::Approve { tool: name, expected, class: Class::Write, labels: vec![label] };
        apply(control, approve).await.unwrap();
    }
    let grant = Grant { key: "bot".into(), server: "all".into(), access: Access::Write, confirm_trifecta: false };
    apply(control, Change::Grant(grant)).await.unwrap();
}

fn running(control: &Control) -> Arc<Upstream> {
    let snapshot = control.live.load().unwrap();
    Arc::clone(&snapshot.organizations["acme"].servers["all"].upstream)
}

#[tokio::test]
async fn a_refused_change_leaves_state_store_and_running_servers_alone() {
    let dir = Dir::make("refused");
    let control = dir.control().await;
    all_but_closed(&control).await;
    let (before, upstream) = (control.catalog(), running(&control));
    let (stored, audit) = (control.store.load().await.unwrap(), control.audit(0, 1000).await.unwrap());
    let current = before.find::<Server>(None, "all").unwrap().value.clone();
    // one that compiles, to another way to reach the server, and is refused after that
    let after = Server { projects: vec!["support".into()], timeout: Some("7s".parse().unwrap()), ..current.clone() };
    let close = Change::ReplaceServer { before: current.clone(), after, heard: Some(heard(&["a", "d"])) };
    assert!(matches!(apply(&control, close.clone()).await, Err(ChangeError::Trifecta(_))));
    // one that does not fit together, one that was made for another state
    let lost = Server { projects: vec!["nope".into()], ..current.clone() };
    let lost = Change::ReplaceServer { before: current.clone(), after: lost, heard: None };
    assert!(matches!(apply(&control, lost).await, Err(ChangeError::Invalid(_))));
    let stale = Server { http2: true, ..current.clone() };
    let stale = Change::ReplaceServer { before: stale, after: current.clone(), heard: None };
    assert!(matches!(apply(&control, stale).await, Err(ChangeError::Moved(_))));
    assert!(Arc::ptr_eq(&before, &control.catalog()), "the catalog is the same");
    assert_eq!(control.store.load().await.unwrap(), stored);
    assert_eq!(control.audit(0, 1000).await.unwrap(), audit);
    // and the next change finds the server that runs, with its breaker and sessions
    let project = Project { id: "more".into(), organization: "acme".into(), archived: false };
    apply(&control, Change::CreateProject(project)).await.unwrap();
    assert!(Arc::ptr_eq(&upstream, &running(&control)), "a refused change resets no breaker");
    // confirmed, it is made whole: the key is closed, and who confirmed is kept with it
    let asker = Asker { who: "me".into(), confirm: Confirm::Yes, ..Asker::default() };
    let done = control.apply(&close, &asker).await.unwrap();
    assert!(done.closed.contains("bot"));
    assert_eq!(done.tools(&current).count(), 4, "a, b, c and d");
    let kept = control.store.load().await.unwrap().overrides;
    assert_eq!((kept.len(), kept[0].kind.as_str(), kept[0].id.as_str()), (1, "trifecta", "bot"));
}

#[tokio::test]
async fn two_nodes_on_one_store_lose_no_change_of_each_other() {
    let dir = Dir::make("fleet");
    let (one, two) = (dir.control().await, dir.control().await);
    let project =
        |id: &str| Change::CreateProject(Project { id: id.into(), organization: "acme".into(), archived: false });
    let ids = |catalog: &Catalog| catalog.records.projects.iter().map(|p| p.value.id.clone()).collect::<Vec<_>>();
    for round in 0..4 {
        apply(&one, project(&format!("one{round}"))).await.unwrap();
        apply(&two, project(&format!("two{round}"))).await.unwrap();
    }
    assert!(one.refresh().await.unwrap(), "the other node wrote last");
    assert!(!one.refresh().await.unwrap());
    assert_eq!(ids(&one.catalog()), ids(&two.catalog()));
    assert_eq!(ids(&one.catalog()).len(), 2 + 8);
    assert_eq!(one.catalog().revision, two.catalog().revision);
    // what clashes is refused on the node that comes second
    apply(&one, project("same")).await.unwrap();
    assert!(matches!(apply(&two, project("same")).await, Err(ChangeError::Invalid(_))));
    // a listing on one node is known on the other
    apply(&one, Change::Register { server: server("demo", &[]), heard: heard(&["a"]) }).await.unwrap();
    two.refresh().await.unwrap();
    two.listed("acme/demo", Revision::MODERN, heard(&["a", "b"]).tools).await.unwrap();
    one.refresh().await.unwrap();
    assert_eq!(one.catalog().records.tools.len(), 2);
}

/// Servers with tools, all of them approved, as the store would hold them.
fn many(servers: usize, tools: usize) -> Vec<Write> {
    let mut writes = Vec::new();
    for s in 0..servers {
        let server = server(&format!("s{s}"), &[]);
        writes.push(Write::PutObject(server.stored()));
        for (t, listed) in heard(&(0..tools).map(|_| "tool").collect::<Vec<_>>()).tools.into_iter().enumerate() {
            let json = listed.definition.json.replace("tool", &format!("tool_{t}_of_{s}"));
            let definition = Definition { sha256: Pin::of_definition(json.as_bytes()).unwrap(), json: json.into() };
            writes.push(Write::PutTool(ToolRecord {
                organization: "acme".into(),
                server: server.slug.clone(),
                name: format!("tool_{t}_of_{s}"),
                recorded: i64::try_from(s * tools + t).unwrap(),
                current: Some(definition.clone()),
                fault: None,
                pin: Some(definition.sha256),
                pin_seen: true,
                changed: false,
                approved: Some(definition),
                decision: Some(Decision { status: ApprovalStatus::Approved, class: Class::Read, labels: vec![] }),
            }));
        }
    }
    writes
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "the figures of docs/management.md")]
async fn a_change_among_10_000_tools_compiles_only_what_it_approves() {
    let dir = Dir::make("many");
    let store = Store::open(&format!("sqlite:{}/store.db", dir.0.display())).await.unwrap();
    store.commit(None, &many(500, 20), &[]).await.unwrap();
    store.close().await;
    let control = dir.control().await;
    let compiled = async || control.state.lock().await.handles.compiled();
    assert_eq!(compiled().await, 10_000);
    let policy = |slug: &str| Arc::clone(&control.live.load().unwrap().organizations["acme"].servers[slug]);
    let tool = |slug: &str, name: &str| Arc::clone(&policy(slug).tools[name]);
    let before = tool("s7", "tool_3_of_7");
    let names: Vec<String> = (0..20).map(|n| format!("new_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let began = Instant::now();
    apply(&control, Change::Register { server: server("new", &[]), heard: heard(&names) }).await.unwrap();
    let registered = began.elapsed();
    assert_eq!(compiled().await, 10_000, "nothing of it is approved yet");
    let name = ToolName { organization: None, server: "new".into(), tool: "new_3".into() };
    let expected = control.catalog().tool(&name).unwrap().1.current.as_ref().unwrap().sha256;
    let began = Instant::now();
    let approve = Change::Approve { tool: name, expected, class: Class::Read, labels: vec![] };
    let done = apply(&control, approve).await.unwrap();
    println!("registered in {registered:?}, approved in {:?}", began.elapsed());
    assert_eq!(compiled().await, 10_001, "the one that was approved");
    assert_eq!(done.records.tools.len(), 10_020);
    let schemas = |tool: &ToolPolicy| Arc::as_ptr(tool.schemas.as_ref().unwrap());
    assert_eq!(schemas(&before), schemas(&tool("s7", "tool_3_of_7")), "what did not change is shared");
    let name = ToolName { organization: None, server: "s7".into(), tool: "tool_3_of_7".into() };
    apply(&control, Change::Block(name)).await.unwrap();
    assert_eq!(tool("s7", "tool_3_of_7").state, ToolState::Blocked);
    assert_eq!(compiled().await, 10_001);
}
