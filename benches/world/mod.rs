//! A policy of any size and calls that pass it: what the benches measure the line on. No sockets, no clock.
//!
//! Everything is made by the product's own doors: the conf and the policy from text, the snapshot by `policy::compile`.
//! `policy.rs` is what is compiled, `traffic.rs` what is called and answered.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::expect_used)]

mod fleet;
mod policy;
mod traffic;

use std::{net::IpAddr, sync::Arc};

pub use policy::{Checks, Source};
use toolgate::{
    call::{
        Admission, Admitted, Asked, Caller, Charged, Now, Subject, admit,
        answer::{Heard, IdRule, hear},
        attribution, authenticate, charge,
        input::Asking,
        output::{self, Exchange},
        route, throttle,
    },
    model::{jsonrpc::Document, mcp::Revision},
    policy::{
        compile::Handles,
        snapshot::{KeyPolicy, Snapshot, ToolPolicy},
    },
    upstream::{
        client::Client,
        dns::Resolver,
        envelope::{self, CallMeta, OurId},
        server::Registry,
        sessions::{SessionLimits, Sessions},
    },
};
pub use traffic::Call;

/// How many different calls go round: each with its own key, server and tool, spread over the policy. The same in every size, so
/// that what differs is the size of the policy and not how many tools are kept warm in the caches.
const CALLS: usize = 8;
/// The same for traffic that is spread over many tools.
const CALLS_SPREAD: usize = 256;
/// Nanoseconds between two calls, and where the clock of the budgets starts.
const STEP_NS: u64 = 1_000;
const START_NS: u64 = 3_600_000_000_000;
/// Seconds since 1970.
const UNIX: i64 = 1_800_000_000;

/// A compiled policy and the calls that pass it.
pub struct World {
    /// The policy.
    pub snapshot: Arc<Snapshot>,
    /// The calls.
    pub calls: Vec<Call>,
    turn: usize,
    fleet: Option<fleet::Fleet>,
}

/// Handles of which nothing is kept yet.
pub fn handles() -> Handles {
    let client = Arc::new(Client::new(Resolver::system()));
    Handles::new(Registry::new(Sessions::new(client, SessionLimits::default())))
}

impl World {
    /// A policy of that size, compiled, with its calls.
    pub fn new(size: usize, checks: Checks) -> Self {
        Self::with_calls(size, checks, CALLS)
    }

    /// The same for traffic over many of its tools.
    pub fn spread(size: usize, checks: Checks) -> Self {
        Self::with_calls(size, checks, CALLS_SPREAD)
    }

    /// The same as [`Self::new`], with limits that a fleet shares.
    pub fn in_fleet(size: usize, checks: Checks) -> Self {
        let (source, fleet) = (Source::new(size, checks), fleet::Fleet::start());
        let mut handles = handles();
        handles.buckets = fleet.limits();
        let snapshot = source.compile(&mut handles);
        Self { fleet: Some(fleet), ..Self::of(&source, snapshot, CALLS) }
    }

    fn with_calls(size: usize, checks: Checks, calls: usize) -> Self {
        let source = Source::new(size, checks);
        let snapshot = source.compile(&mut handles());
        Self::of(&source, snapshot, calls)
    }

    /// Calls that pass a compiled policy, spread over it.
    pub fn of(source: &Source, snapshot: Snapshot, calls: usize) -> Self {
        let (size, count) = (source.size(), calls.min(source.size()));
        let calls = (0..count).map(|n| traffic::call(n * size / count, source.checks())).collect();
        Self { snapshot: Arc::new(snapshot), calls, turn: 0, fleet: None }
    }

    /// The time of the next decision.
    pub fn now(&mut self) -> Now {
        self.turn += 1;
        Now { unix: UNIX, nanos: START_NS + self.turn as u64 * STEP_NS }
    }

    /// The next call in turn.
    pub fn next(&self) -> &Call {
        &self.calls[self.turn % self.calls.len()]
    }

    /// One call from the head to the released result; its length.
    pub fn run(&mut self) -> usize {
        let now = self.now();
        let call = self.next();
        let key = identify(&self.snapshot, call, now);
        let mut asked = Asked::default();
        let admitted = admitted(&self.snapshot, key, call, &mut asked, now);
        let sent = upstream_body(&admitted);
        let result = release(&self.snapshot, key, &admitted, &asked, &call.answer);
        sent.len() + result.len()
    }
}

/// Rows 2 to 13 of contract §2: the verdict on key and route.
pub fn identify<'s>(snapshot: &'s Snapshot, call: &Call, now: Now) -> &'s KeyPolicy {
    let settings = &snapshot.settings;
    let endpoint = route::endpoint(&call.path, &settings.base_path).unwrap();
    assert_eq!(endpoint, route::Endpoint::Aggregated);
    let client = authenticate::client_address(&call.head, IpAddr::from([127, 0, 0, 1]), &settings.trusted_proxies);
    let digest = authenticate::bearer(&call.head).unwrap();
    let key = &*authenticate::key(snapshot, &digest, now).unwrap().key;
    authenticate::standing(key, client).unwrap();
    throttle::key(key, now).unwrap();
    attribution::read(&call.head, None, &settings.attribution_prefix).unwrap();
    key
}

/// The request side of the line.
pub fn admitted(snapshot: &Snapshot, key: &KeyPolicy, call: &Call, asked: &mut Asked, now: Now) -> Admitted {
    let caller = Caller { snapshot, key, granted: None, user: None };
    match admit(&caller, &call.head, &call.body, asked) {
        Ok(Admission::Call(checked)) => match charge(*checked, &snapshot.settings, now).unwrap() {
            Charged::Admitted(admitted) => admitted,
            Charged::Unpaid(_) => panic!("a limit of one node says at once"),
        },
        other => panic!("{other:?}"),
    }
}

/// The tool of a call.
pub fn called_tool(call: &Admitted) -> &ToolPolicy {
    match &call.checked.subject {
        Subject::Tool(tool) => tool,
        Subject::Passed { .. } => panic!("a call of a tool"),
    }
}

/// What goes to the server.
pub fn upstream_body(admitted: &Admitted) -> Vec<u8> {
    let checked = &admitted.checked;
    let meta = CallMeta { client_capabilities: checked.meta.capabilities.as_deref(), ..CallMeta::default() };
    envelope::call_body(Revision::MODERN, OurId(7), checked.subject.title(), &checked.arguments, &meta)
}

/// The response side of the line.
pub fn release(snapshot: &Snapshot, key: &KeyPolicy, call: &Admitted, asked: &Asked, answer: &[u8]) -> Vec<u8> {
    let settings = &snapshot.settings;
    let mut exchange = Exchange {
        call,
        asked,
        key,
        settings,
        our_id: "g7",
        nonce: [0; 12],
        notes: Vec::new(),
        asking: Asking::default(),
        progress_dropped: 0,
    };
    let mut scratch = Vec::new();
    let document = Document::parse(answer, &mut scratch).unwrap();
    match hear(&document, "g7", IdRule::Ours) {
        Ok(Heard::Result(result)) => output::release(&mut exchange, &document, &result).unwrap(),
        other => panic!("{other:?}"),
    }
}
