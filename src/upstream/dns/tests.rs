//! Tests of `dns.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use super::{super::egress::judge_url, *};

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|ip| ip.parse().unwrap()).collect()
}

fn named(list: &[&str]) -> Resolver {
    Resolver::table([("h.example".to_owned(), ips(list))])
}

fn slot() -> Addresses {
    Addresses::new(judge_url("https://h.example/mcp", &EgressRules::default()).unwrap(), Arc::default())
}

fn picked(slot: &Addresses, times: usize) -> Vec<String> {
    (0..times).map(|_| slot.pick().map_or("none".into(), |a| a.to_string())).collect()
}

#[tokio::test]
async fn one_forbidden_address_refuses_the_name() {
    let check = async |list: &[&str], expected: Result<usize, ResolveError>| {
        let endpoint = judge_url("https://h.example/mcp", &EgressRules::default()).unwrap();
        let own = EgressRules { own_addresses: vec!["9.9.9.9:443".parse().unwrap()], ..EgressRules::default() };
        let got = named(list).resolve(&endpoint, &own).await.map(|found| found.len());
        assert_eq!(got, expected, "{list:?}");
    };
    check(&["8.8.8.8"], Ok(1)).await;
    check(&["8.8.8.8", "2606:4700::1111", "8.8.8.8", "::ffff:8.8.8.8"], Ok(2)).await;
    check(&["8.8.8.8", "10.0.0.1"], Err(ResolveError::Refused)).await;
    check(&["127.0.0.1"], Err(ResolveError::Refused)).await;
    check(&["8.8.8.8", "::ffff:169.254.169.254"], Err(ResolveError::Refused)).await;
    check(&["9.9.9.9"], Err(ResolveError::Own)).await;
    check(&[], Err(ResolveError::NotFound)).await;
    let many: Vec<String> = (1..=ADDRESSES_MAX + 1).map(|n| format!("8.8.8.{n}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    check(&many, Ok(ADDRESSES_MAX)).await;
    many.push("10.0.0.1");
    check(&many, Err(ResolveError::Refused)).await;
}

#[tokio::test]
async fn the_system_resolver_is_judged_as_well() {
    let open = EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        ..EgressRules::default()
    };
    let system = Resolver::system();
    assert_eq!(system.resolve_name("localhost", 1, &EgressRules::default()).await, Err(ResolveError::Refused));
    assert!(system.resolve_name("localhost", 1, &open).await.unwrap().iter().all(IpAddr::is_loopback));
}

#[tokio::test]
async fn addresses_take_turns_and_the_last_good_stay() {
    let slot = slot();
    assert_eq!(slot.pick(), Err(Unresolved));
    slot.refresh(&named(&["8.8.8.8", "2606:4700::1111"])).await.unwrap();
    assert_eq!(picked(&slot, 3), ["[2606:4700::1111]:443", "8.8.8.8:443", "[2606:4700::1111]:443"]);
    assert_eq!(slot.refresh(&named(&[])).await, Err(ResolveError::NotFound));
    assert_eq!(picked(&slot, 1), ["8.8.8.8:443"]);
    slot.refresh(&named(&["1.1.1.1"])).await.unwrap();
    assert_eq!(picked(&slot, 2), ["1.1.1.1:443", "1.1.1.1:443"]);
    assert_eq!(slot.refresh(&named(&["1.1.1.1", "10.0.0.1"])).await, Err(ResolveError::Refused));
    assert_eq!(picked(&slot, 1), ["none"], "a name that turned to a private address is dropped");
    slot.refresh(&named(&["1.1.1.1"])).await.unwrap();
    assert_eq!(picked(&slot, 1), ["1.1.1.1:443"]);
}

#[tokio::test]
async fn a_failed_address_is_skipped_while_another_is_left() {
    let slot = slot();
    slot.refresh(&named(&["1.1.1.1", "2.2.2.2", "3.3.3.3"])).await.unwrap();
    slot.note("2.2.2.2:443".parse().unwrap(), false);
    assert!(!picked(&slot, 9).contains(&"2.2.2.2:443".to_owned()));
    slot.note("2.2.2.2:443".parse().unwrap(), true);
    assert!(picked(&slot, 3).contains(&"2.2.2.2:443".to_owned()));
    for ip in ["1.1.1.1:443", "2.2.2.2:443", "3.3.3.3:443"] {
        slot.note(ip.parse().unwrap(), false);
    }
    assert_eq!(picked(&slot, 3).len(), 3, "all failed: all are tried again");
    assert!(!picked(&slot, 3).contains(&"none".to_owned()));
    slot.note("9.9.9.9:443".parse().unwrap(), false);
    slot.refresh(&named(&["1.1.1.1", "2.2.2.2", "3.3.3.3"])).await.unwrap();
    let seen: std::collections::HashSet<_> = picked(&slot, 3).into_iter().collect();
    assert_eq!(seen.len(), 3, "a look-up forgives");
}

#[test]
fn an_address_in_the_url_needs_no_look_up() {
    let rules = EgressRules { allow_http: true, ..EgressRules::default() };
    let slot = Addresses::new(judge_url("http://8.8.8.8:81/", &rules).unwrap(), Arc::new(rules));
    assert_eq!(picked(&slot, 1), ["8.8.8.8:81"]);
}

#[test]
fn readers_never_see_a_mixed_list() {
    let slot = slot();
    let (v4, v6) = (ips(&["1.1.1.1", "1.1.1.2"]), ips(&["2606::1", "2606::2", "2606::3"]));
    let whole: Vec<SocketAddr> = v4.iter().chain(&v6).map(|ip| SocketAddr::new(*ip, 443)).collect();
    slot.publish(&v4);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..20_000 {
                slot.publish(if round % 2 == 0 { &v6 } else { &v4 });
            }
        });
        while !writer.is_finished() {
            let got = slot.pick().unwrap();
            assert!(whole.contains(&got), "{got} was never published");
        }
    });
}
