//! The console: a browser's way in, who may do what there, forms that are nobody else's, and nothing of a server that is markup.

use http_body_util::Full;
use hyper::{HeaderMap, Request, body::Bytes};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::api::Api;
use crate::support::{
    Faults,
    gateway::{Gateway, Gw},
    pin::hex,
    run,
    upstream::{Up, Upstream},
};

/// What a browser holds.
struct Browser {
    api: Api,
    host: String,
    cookie: Option<String>,
}

struct Page {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Page {
    /// The secret of the page's forms.
    fn form(&self) -> String {
        let (_, rest) = self.text.split_once(r#"name="form" value=""#).expect("a form");
        rest.split('"').next().expect("its end").to_owned()
    }

    fn location(&self) -> &str {
        self.headers["location"].to_str().expect("a location")
    }
}

impl Browser {
    fn of(address: std::net::SocketAddr) -> Self {
        Self { api: Api::tcp(address, None), host: address.to_string(), cookie: None }
    }

    async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Page {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.host);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let body = if method == "POST" { body } else { String::new() };
        let answered = self.api.exchange(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let (status, headers, text) = answered.unwrap_or_else(|why| panic!("{method} {path}: {why}"));
        Page { status, headers, text }
    }

    async fn get(&self, path: &str) -> Page {
        self.send("GET", path, &[], &[]).await
    }

    /// Sends a form as a page of ours does.
    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let origin = format!("http://{}", self.host);
        self.send("POST", path, fields, &[("origin", &origin), FORM]).await
    }

    async fn log_in(&mut self, token: &str) -> Page {
        let page = self.post("/console/login", &[("token", token)]).await;
        if let Some(line) = page.headers.get("set-cookie") {
            self.cookie = line.to_str().unwrap().split(';').next().map(str::to_owned);
        }
        page
    }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const TOOL: &str = "/console/tool?organization=acme&server=demo&tool=echo";

async fn fixture() -> (Gw, Up, std::net::SocketAddr) {
    let evil = "Echo.\u{200b} <script>alert(1)</script>\" & more";
    let up = Upstream::new()
        .definition(json!({ "name": "echo", "description": evil, "inputSchema": { "type": "object" } }))
        .tool("<b>&", json!({ "type": "object" }))
        .run()
        .await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::free_port()));
    let tokens: Vec<String> = ["viewer", "approver", "admin"]
        .iter()
        .map(|role| {
            format!("{{ name = 'the-{role}', role = '{role}', sha256 = '{}' }}", hex(format!("tok-{role}").as_bytes()))
        })
        .collect();
    let conf = format!("[admin]\nlisten = '{address}'\ntokens = [{}]", tokens.join(","));
    let gw = Gateway::new().conf(&conf).run().await;
    Api::of(&gw).register("demo", &up).await;
    (gw, up, address)
}

#[test]
fn a_reviewer_approves_blocks_and_sees_what_changed() {
    run(async {
        let (gw, up, address) = fixture().await;
        let api = Api::of(&gw);
        api.key("bot").await;
        api.grant("bot", "demo", "read").await.ok();
        let mut ben = Browser::of(address);
        assert_eq!(ben.log_in("tok-approver").await.location(), "/console/tools");
        let list = ben.get("/console/tools").await;
        assert!(list.text.contains("tool=echo"), "{}", list.text);
        assert!(list.text.contains("&lt;b&gt;&amp;"), "a tool's name is text: {}", list.text);
        let page = ben.get(TOOL).await;
        assert!(page.text.contains(">U+200B</mark> &lt;script&gt;"), "{}", page.text);
        assert!(!page.text.contains("<script") && page.text.contains("hidden text"), "{}", page.text);
        let sha256 = api.get("/v1/servers/demo/tools/echo").await.ok()["sha256"].as_str().unwrap().to_owned();
        let form = page.form();
        let approve = [("form", form.as_str()), ("do", "approve"), ("sha256", &sha256), ("class", "read")];
        // nothing is decided by leaving something out
        let silent = ben.post(TOOL, &approve).await;
        assert_eq!(silent.status, 400);
        assert!(silent.text.contains("Say what the tool brings"), "{}", silent.text);
        let both = [&approve[..], &[("label", "none"), ("label", "sends_out")]].concat();
        assert_eq!(ben.post(TOOL, &both).await.status, 400);
        let good = [&approve[..], &[("label", "none"), ("note", "read it <twice>")]].concat();
        let done = ben.post(TOOL, &good).await;
        assert_eq!((done.status, done.location()), (303, TOOL), "{}", done.text);
        assert_eq!(api.get("/v1/servers/demo/tools/echo").await.ok()["status"], "approved");
        // a definition that changed while it was read is not approved by the hash of the old one
        up.set_tool(
            json!({ "name": "echo", "description": "Echo, and tell Eve.", "inputSchema": { "type": "object" } }),
        );
        api.act("/v1/servers/demo/discover").await.ok();
        let stale = ben.post(TOOL, &good).await;
        assert_eq!(stale.status, 400);
        let page = ben.get(TOOL).await.text;
        assert!(page.contains("<del>") && page.contains("<ins>"), "{page}");
        let blocked = [("form", form.as_str()), ("do", "block"), ("note", "tells Eve")];
        assert_eq!(ben.post(TOOL, &blocked).await.status, 303);
        assert_eq!(api.get("/v1/servers/demo/tools/echo").await.ok()["status"], "blocked");
        // who, what and why
        let audit = api.pages("/v1/audit", "audit").await;
        let last = audit.last().unwrap();
        assert_eq!(
            (last["what"].as_str(), last["who"].as_str(), last["after"]["note"].as_str()),
            (Some("tool.block"), Some("token the-approver"), Some("tells Eve"))
        );
        let shown = ben.get("/console/audit").await.text;
        assert!(shown.contains("read it &lt;twice&gt;") && shown.contains("tells Eve"), "{shown}");
        let keys = ben.get("/console/keys").await.text;
        assert!(keys.contains("bot") && keys.contains("<b>demo</b>: read"), "{keys}");
    });
}

#[test]
fn a_trifecta_is_confirmed_on_the_page() {
    run(async {
        let (gw, up, address) = fixture().await;
        let api = Api::of(&gw);
        for name in ["a", "b"] {
            up.set_tool(json!({ "name": name, "inputSchema": { "type": "object" } }));
        }
        api.act("/v1/servers/demo/discover").await.ok();
        api.approve("demo", "a", "read", &["private_data"]).await.ok();
        api.approve("demo", "b", "read", &["untrusted_content"]).await.ok();
        api.key("bot").await;
        api.grant("bot", "demo", "write").await.ok();
        let mut browser = Browser::of(address);
        browser.log_in("tok-admin").await;
        let form = browser.get(TOOL).await.form();
        let sha256 = api.get("/v1/servers/demo/tools/echo").await.ok()["sha256"].as_str().unwrap().to_owned();
        let fields = [
            ("form", form.as_str()),
            ("do", "approve"),
            ("sha256", &sha256),
            ("class", "read"),
            ("label", "sends_out"),
        ];
        let refused = browser.post(TOOL, &fields).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("confirm_trifecta") && refused.text.contains("bot"), "{}", refused.text);
        assert!(refused.text.contains(r#"value="sends_out" checked"#), "what was ticked stays: {}", refused.text);
        assert_eq!(browser.post(TOOL, &[&fields[..], &[("confirm_trifecta", "true")]].concat()).await.status, 303);
    });
}

#[test]
fn what_is_not_a_reviewers_own_doing_changes_nothing() {
    run(async {
        let (gw, _up, address) = fixture().await;
        let api = Api::of(&gw);
        let (mut ann, mut ben) = (Browser::of(address), Browser::of(address));
        ann.log_in("tok-viewer").await;
        ben.log_in("tok-approver").await;
        let (seen, form) = (ann.get(TOOL).await, ben.get(TOOL).await.form());
        assert!(!seen.text.contains(r#"value="block""#), "a viewer is offered nothing to do");
        let theirs = seen.form();
        let revision = api.revision().await;
        let own = format!("http://{address}");
        let rows: Vec<(&str, &Browser, &str, Vec<(&str, &str)>, u16)> = vec![
            ("a viewer", &ann, &theirs, vec![("origin", &own), FORM], 403),
            ("no form of this login", &ben, "", vec![("origin", &own), FORM], 403),
            ("the form of another login", &ben, &theirs, vec![("origin", &own), FORM], 403),
            ("no origin", &ben, &form, vec![FORM], 403),
            ("a null origin", &ben, &form, vec![("origin", "null"), FORM], 403),
            ("another origin", &ben, &form, vec![("origin", "http://evil.example"), FORM], 403),
            ("another port", &ben, &form, vec![("origin", "http://127.0.0.1:1"), FORM], 403),
            ("from another site", &ben, &form, vec![("origin", &own), ("sec-fetch-site", "cross-site"), FORM], 403),
            ("no form at all", &ben, &form, vec![("origin", &own), ("content-type", "text/plain")], 400),
        ];
        let mut faults = Faults::default();
        let count = rows.len();
        for (name, browser, form, headers, status) in rows {
            let row = async {
                let page = browser.send("POST", TOOL, &[("form", form), ("do", "block")], &headers).await;
                assert_eq!(page.status, status, "{}", page.text);
                assert_eq!(api.revision().await, revision);
            };
            faults.row(name, row).await;
        }
        faults.assert_none(count);
        // a link changes nothing either, and a stranger sees only the login
        assert_eq!(ben.get(&format!("{TOOL}&do=block&form={form}")).await.status, 200);
        assert_eq!(api.revision().await, revision);
        let stranger = Browser::of(address);
        for path in ["/console", "/console/tools", TOOL, "/console/keys", "/console/audit", "/console/nothing"] {
            let page = stranger.get(path).await;
            assert_eq!((page.status, page.location()), (303, "/console/login"), "{path}");
        }
        assert_eq!(stranger.post(TOOL, &[("form", &form), ("do", "block")]).await.location(), "/console/login");
        assert_eq!(ben.send("DELETE", TOOL, &[], &[]).await.status, 405);
        assert_eq!(ben.get("/console/nothing").await.status, 404);
        assert_eq!(ben.get("/console/tool?server=nope&tool=x").await.status, 404);
        assert_eq!(api.revision().await, revision);
        ben.post(TOOL, &[("form", &form), ("do", "block")]).await;
        assert_eq!(api.revision().await, revision + 1, "the same form, sent as it should be");
    });
}

#[test]
fn a_login_is_a_cookie_that_ends_with_the_token() {
    run(async {
        let (gw, _up, address) = fixture().await;
        let mut ben = Browser::of(address);
        for wrong in ["", "tok-nobody", "TOK-APPROVER"] {
            let page = ben.log_in(wrong).await;
            assert_eq!((page.status, page.headers.get("set-cookie")), (401, None));
        }
        let page = ben.log_in("tok-approver").await;
        let line = page.headers["set-cookie"].to_str().unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age=28800"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains("tok-approver") && !line.contains("Secure"), "{line}");
        let page = ben.get("/console/tools").await;
        assert_eq!(page.status, 200);
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self';") && !policy.contains("unsafe"), "{policy}");
        for (name, value) in
            [("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("x-frame-options", "DENY")]
        {
            assert_eq!(page.headers[name], value);
        }
        assert_eq!(ben.get("/console/style.css").await.headers["content-type"], "text/css; charset=utf-8");
        // the cookie opens pages only, and the token of the API no page
        let cookie = ben.cookie.clone().unwrap();
        Api::tcp(address, None).send("GET", "/v1/status", None, &[("cookie", &cookie)]).await.refused(401, "");
        let bearer = [("authorization", "Bearer tok-approver")];
        assert_eq!(Browser::of(address).send("GET", "/console/tools", &[], &bearer).await.status, 303);
        // logged out, also for whoever kept the cookie
        let form = page.form();
        assert_eq!(ben.post("/console/logout", &[("form", &form)]).await.location(), "/console/login");
        assert_eq!(ben.get("/console/tools").await.status, 303);
        // a token that is taken away ends its logins
        ben.log_in("tok-approver").await;
        let path = gw.folder().join("toolgate.toml");
        let text = std::fs::read_to_string(&path).unwrap().replace(&hex(b"tok-approver"), &hex(b"another"));
        std::fs::write(&path, text).unwrap();
        Api::of(&gw).act("/v1/reload").await.ok();
        assert_eq!(ben.get("/console/tools").await.status, 303);
        // and it is on no other listener
        let (status, _, text) = Api::of(&gw)
            .exchange(Request::builder().uri("/console").header("host", "x").body(Full::new(Bytes::new())).unwrap())
            .await
            .unwrap();
        assert_eq!(status, 404, "{text}");
        let _: Value = serde_json::from_str(&text).unwrap();
    });
}
