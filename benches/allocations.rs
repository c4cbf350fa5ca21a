//! What contract §5 promises of memory, as a test: the verdict on key and route and the verdict on grant and approval
//! allocate nothing, whatever they say; and what a whole call allocates is known and bounded.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod world;

use allocation_counter::measure;
use http::HeaderMap;
use toolgate::{
    call::{Now, authenticate, resolve, route, throttle},
    policy::snapshot::{KeyPolicy, Snapshot},
    refusal::Refusal,
};
use world::{Checks, World};

const NOW: Now = Now { unix: 1_800_000_000, nanos: 3_600_000_000_000 };

/// The most allocations of a whole call of 1 KiB through the full chain, warm: from the head to the released result.
const CALL_ALLOCATIONS_MAX: u64 = 200;

/// Runs `verdict` once to warm the thread up, then again counting.
fn allocates_nothing<T>(what: &str, mut verdict: impl FnMut() -> T) -> T {
    drop(verdict());
    let mut said = None;
    let counted = measure(|| said = Some(verdict()));
    assert_eq!(counted.count_total, 0, "{what}: allocations");
    said.unwrap()
}

/// Route, key, standing, rate, and the server of a per-server path.
fn key_and_route<'s>(snapshot: &'s Snapshot, head: &HeaderMap, path: &str) -> Result<&'s KeyPolicy, Refusal> {
    let settings = &snapshot.settings;
    let endpoint = route::endpoint(path, &settings.base_path)?;
    let peer = std::net::IpAddr::from([127, 0, 0, 1]);
    let client = authenticate::client_address(head, peer, &settings.trusted_proxies);
    let digest = authenticate::bearer(head)?;
    let key = &authenticate::key(snapshot, &digest, NOW)?.key;
    authenticate::standing(key, client)?;
    throttle::key(key, NOW)?;
    if let route::Endpoint::Server(slug) = endpoint {
        route::server(&key.view, &slug)?;
    }
    Ok(key)
}

#[test]
fn the_verdict_on_key_and_route_allocates_nothing() {
    let world = World::new(10, Checks::ALL);
    let known = &world.calls[3].head;
    let mut unknown = known.clone();
    unknown.insert("authorization", "Bearer somebody-else".parse().unwrap());
    let mut none = known.clone();
    none.remove("authorization");
    for (head, path, expected) in [
        (known, "/gateway/mcp", Ok(())),
        (known, "/gateway/server-000003/mcp", Ok(())),
        (known, "/gateway/server-000004/mcp", Err(Refusal::ServerNotFound)),
        (known, "/gateway/no-such-server/mcp", Err(Refusal::ServerNotFound)),
        (known, "/elsewhere", Err(Refusal::NotFound)),
        (&unknown, "/gateway/mcp", Err(Refusal::Unauthenticated)),
        (&none, "/gateway/mcp", Err(Refusal::Unauthenticated)),
    ] {
        let said = allocates_nothing(path, || key_and_route(&world.snapshot, head, path).map(|_| ()));
        assert_eq!(said, expected, "{path}");
    }
}

#[test]
fn the_verdict_on_grant_and_approval_allocates_nothing() {
    let world = World::new(10, Checks::ALL);
    let key = key_and_route(&world.snapshot, &world.calls[3].head, "/gateway/mcp").unwrap();
    let granted = key.view.servers.get("server-000003").unwrap();
    let aggregated = |name| {
        allocates_nothing(name, || resolve::aggregated(key, name).map(|(server, _)| server.slug.to_string().len() > 40))
    };
    for (name, allowed) in [("server-000003_create_issue", true), ("server-000004_create_issue", false)] {
        let said = allocates_nothing(name, || resolve::aggregated(key, name).map(|_| ()));
        assert_eq!(said, if allowed { Ok(()) } else { Err(Refusal::ToolNotAllowed) }, "{name}");
    }
    let said = allocates_nothing("create_issue", || resolve::on_server(granted, "create_issue").map(|_| ()));
    assert_eq!(said, Ok(()));
    // The counter counts: the same verdict with a copied name would not pass.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| aggregated("server-000003_create_issue")));
    assert!(outcome.is_err(), "an allocation was not seen");
}

#[test]
fn the_place_and_the_token_at_a_server_cost_no_memory() {
    let world = World::new(10, Checks::ALL);
    let key = key_and_route(&world.snapshot, &world.calls[3].head, "/gateway/mcp").unwrap();
    let server = &key.view.servers.get("server-000003").unwrap().server;
    allocates_nothing("charge", || drop(throttle::server(server, &world.snapshot.settings, NOW).unwrap()));
}

#[test]
fn a_whole_call_allocates_little_and_the_same_in_every_policy() {
    let mut counts = Vec::new();
    for size in [10, 1_000] {
        let mut world = World::new(size, Checks::ALL);
        for _ in 0..64 {
            world.run();
        }
        let counted = measure(|| {
            for _ in 0..64 {
                world.run();
            }
        });
        counts.push(counted.count_total.div_ceil(64));
    }
    println!("allocations a call: {counts:?}");
    assert!(counts.iter().all(|count| *count <= CALL_ALLOCATIONS_MAX), "{counts:?}");
    assert_eq!(counts.first(), counts.last(), "a policy's size shows in a call's allocations");
}
