//! Every option of the conf: its type, its meaning, its default, its codec, one line each. The shipped
//! `conf/toolgate.toml` is written from these tables, so a doc comment here is what an operator reads there.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde_json::Value as Json;

use super::{
    auth::TokenIssuer,
    codec::{Bool, Count, Id, List, Nested, OrEmpty, OrOff, Text, Word, judged, words},
    credential::{Prefix, Secret},
    logs::{AccessLog, AccessLogs},
    measure::{Bytes, Digest, FilePath, Net, Rates, Time},
    net::{Address, Addresses, Dsn, Listen, Listens, Origins, RedisUrl, StoreUrl, TcpAddresses, WebAddress},
    read::{Codec, Form, Member, Reader, members},
    sections::{Sections, read_section},
    value::{Table, Value},
};
use crate::model::{
    id::KeyDigest,
    records::SecretRef,
    units::{Rate, RateUnit, Size, Span, shown},
};

/// Declares the sections of the conf: structs, defaults and tables of members from one list.
macro_rules! sections {
    ($(
        $(#[doc = $about:literal])+
        $section:ident: $name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $type:ty as $codec:ty = $default:expr $(, $restart:ident)?; )+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name { $( $(#[doc = $doc])+ pub $field: $type, )+ }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($field: $default),+ }
                }
            }

            impl Form for $name {
                const MEMBERS: &'static [Member<Self>] = &[$(Member {
                    name: stringify!($field),
                    doc: &[$($doc),+],
                    required: false,
                    restart: sections!(@ $($restart)?),
                    read: |form, reader, value| {
                        if let Some(read) = <$codec as Codec>::read(reader, value) {
                            form.$field = read;
                        }
                    },
                    write: |form| <$codec as Codec>::write(&form.$field),
                    schema: <$codec as Codec>::schema,
                }),+];
                fn blank() -> Self {
                    Self::default()
                }
            }
        )+

        /// Every option of a gateway (contract §10). Paths are absolute once loaded; [`Conf::default`] has them as written.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Conf { $( $(#[doc = $about])+ pub $section: $name, )+ }

        impl Conf {
            /// The names of the sections.
            pub(super) const SECTIONS: &'static [&'static str] = &[$(stringify!($section)),+];

            /// Reads each section, and notes where its members stand.
            pub(super) fn read_sections(reader: &mut Reader<'_>, table: &Table) -> (Self, Sections) {
                let mut places = Sections::default();
                let conf = Self { $($section: read_section(reader, table, stringify!($section), &mut places)),+ };
                (conf, places)
            }

            /// Calls `each` with the name, the description and the members of each section, as the reference needs them.
            pub(super) fn describe(&self, mut each: impl FnMut(&str, &[&str], Vec<Described>)) {
                $( each(stringify!($section), &[$($about),+], described(&self.$section)); )+
            }

            /// The options that differ from `other`'s, as `section.option`.
            #[must_use]
            pub fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut named = Vec::new();
                $($(
                    if self.$section.$field != other.$section.$field {
                        named.push(concat!(stringify!($section), ".", stringify!($field)));
                    }
                )+)+
                named
            }

            /// The options that differ from `other`'s and that only a restart changes, as `section.option`.
            #[must_use]
            pub fn restart_required(&self, other: &Self) -> Vec<&'static str> {
                let mut named = Vec::new();
                $($(
                    if sections!(@ $($restart)?) && self.$section.$field != other.$section.$field {
                        named.push(concat!(stringify!($section), ".", stringify!($field)));
                    }
                )+)+
                named
            }
        }
    };
    (@ restart) => { true };
    (@) => { false };
}

sections! {
    /// The listeners that agents connect to, and the name under which the gateway speaks.
    gateway: Gateway {
        /// Where agents connect: "IP:port", "unix:PATH", or { address = "IP:port", tls = { certificate = PATH, key = PATH } }.
        /// The files are read again with each reload. tls.client_ca = PATH takes only clients with a certificate of these authorities.
        listen: Vec<Listen> as List<Listens> = vec![Listen { address: Address::Tcp(local(8080)), tls: None }], restart;
        /// The path before /mcp and /SLUG/mcp; "" for none.
        base_path: String as BasePath = "/gateway".into();
        /// The name of this product in refusal messages.
        product: String as Text = "Toolgate".into();
        /// Where a refusal message sends the reader to find an admin.
        console: String as Text = "the Toolgate console".into();
        /// Browser origins that may call, as in an Origin header: `"https://app.example.com"`. Any other Origin is refused.
        allowed_origins: Vec<String> as List<Origins> = Vec::new();
        /// Networks of the proxies whose X-Forwarded-For and traceparent are believed: "10.0.0.0/8", or one address.
        trusted_proxies: Vec<IpNet> as List<Net> = Vec::new();
        /// Worker threads; 0: one per core.
        threads: u32 as Count<0, 1024> = 0, restart;
    }
    /// Metrics and health, for the monitoring of the site; never reachable through the gateway's listeners.
    ops: Ops {
        /// Where GET /metrics, /livez and /readyz answer; "" for nowhere.
        listen: Option<Address> as OrEmpty<Addresses> = Some(Address::Tcp(local(9902))), restart;
    }
    /// The management API.
    admin: Admin {
        /// The unix socket (mode 0600, no token) that the CLI uses; "" for none.
        socket: Option<PathBuf> as OrEmpty<FilePath> = Some("toolgate.sock".into()), restart;
        /// A folder of files that the API may name as credentials; "" for none.
        secrets: Option<PathBuf> as OrEmpty<FilePath> = None;
        /// A TCP listener for the API, "IP:port", where each call needs one of the tokens; "" for none.
        listen: Option<SocketAddr> as OrEmpty<TcpAddresses> = None, restart;
        /// Who may call on the TCP listener: { name, role = "viewer" | "approver" | "admin", sha256 = the token's SHA-256 in hex }.
        tokens: Vec<AdminToken> as List<Nested<AdminToken>> = Vec::new();
    }
    /// Where what the API and discovery change is kept.
    store: Store {
        /// "sqlite:PATH" for one node, "postgres://…" for a fleet.
        url: Dsn as StoreUrl = Dsn::new("sqlite:toolgate.db"), restart;
        /// What seals the credentials of users, by reference: { credential = NAME }, { file = PATH } or { env = NAME }; 32 bytes or more.
        key: Option<SecretRef> as OrEmpty<Secret> = None;
        /// With PostgreSQL: the file (mode 0600) in which this node keeps its last good policy, to start from when PostgreSQL is away; "" for none.
        last_good: Option<PathBuf> as OrEmpty<FilePath> = Some("toolgate.last-good".into()), restart;
        /// With PostgreSQL: how long this node goes on without it before it refuses every call; "off" for as long as it takes.
        max_age: Option<Span> as OrOff<Time<1000, 31_536_000>> = None, restart;
        /// With PostgreSQL: what this node is called in `toolgate fleet`; "" for its host name and its first address.
        node: Option<String> as OrEmpty<Text> = None, restart;
    }
    /// The policy: organizations, projects, servers, keys, grants, approvals and guardrails.
    policy: PolicyFiles {
        /// Policy files; * and ? match within a folder, ** across folders. Read in the order of their names.
        files: Vec<String> as List<Text> = vec!["policy.toml".into()];
    }
    /// Which servers may be spoken to. Without these, only public HTTPS.
    egress: Egress {
        /// Whether a server's URL may begin with http://.
        allow_http: bool as Bool = false;
        /// Networks that are not public and may be reached all the same: "10.0.0.0/8", or one address.
        allow_networks: Vec<IpNet> as List<Net> = Vec::new();
    }
    /// How servers are asked for their tools.
    discovery: Discovery {
        /// How often each server is asked.
        interval: Span as Time<100, 86_400> = seconds(60);
        /// How long a listing stays good; without a younger one the server's calls are refused.
        max_age: Span as Time<100, 31_536_000> = seconds(3600);
    }
    /// The largest things that are taken in.
    limits: Limits {
        /// A request's body.
        request_body: Size as Bytes<1, GIB> = Size(MIB);
        /// The arguments of one call, as received.
        arguments: Size as Bytes<1, GIB> = Size(262_144);
        /// A server's answer; the default of a server's result_limit.
        result: Size as Bytes<1, GIB> = Size(MIB);
        /// The head of a request.
        headers: Size as Bytes<256, MIB> = Size(65_536);
        /// Requests at one time; one more is refused with 503.
        in_flight: u32 as Count<1, 1_000_000> = 10_000;
        /// Memory for compiled tool lists.
        list_cache: Size as Bytes<0, { 64 * GIB }> = Size(64 * MIB);
    }
    /// How long things may take.
    timeouts: Timeouts {
        /// Until a request's head has arrived; on a kept connection from its first byte on.
        request_header: Span as Time<1, 86_400> = seconds(10);
        /// Until a request's body has arrived.
        request_body: Span as Time<1, 86_400> = seconds(30);
        /// Until a connection to a server stands.
        connect: Span as Time<1, 86_400> = seconds(5);
        /// A whole call; the default of a server's timeout.
        call: Span as Time<1, 86_400> = seconds(30);
        /// How long a connection on which nothing comes is kept.
        keep_alive: Span as Time<1, 86_400> = seconds(75);
        /// How long calls in flight may take to end when the gateway stops.
        drain: Span as Time<0, 86_400> = seconds(30);
    }
    /// Rate limits beyond those of keys and servers.
    rate_limits: RateLimits {
        /// "redis://…" or "rediss://…": one Redis or Valkey that the nodes of a fleet share; "" for a single node.
        url: Option<Dsn> as OrEmpty<RedisUrl> = None, restart;
        /// Failed authentications of one client address, "N/s", "N/min" or "N/hour"; "off" for no limit.
        failed_auth: Option<Rate> as OrOff<Rates> = Some(Rate { count: 300, per: RateUnit::Minute });
    }
    /// Headers by which a caller says on whose behalf it calls: PREFIXUser, PREFIXTeam, PREFIXSession, PREFIXTrace-Id, PREFIXTag-NAME.
    attribution: Attribution {
        /// The prefix, ending in "-".
        prefix: String as Prefix = "X-Toolgate-".into();
    }
    /// OAuth: with issuers their tokens (JWTs) are taken beside keys, and clients are told where to get one. Without, nothing of it shows.
    auth: Auth {
        /// { issuer, jwks_url, organization, audience = "…", claim = "sub" }: a token whose claim is the id of a key of that organization
        /// is taken for that key. Without audience it must be for auth.resource.
        issuers: Vec<TokenIssuer> as List<Nested<TokenIssuer>> = Vec::new();
        /// The gateway as clients name it: its public address with gateway.base_path, such as "https://…/gateway".
        resource: Option<String> as OrEmpty<WebAddress> = None;
    }
    /// What is written where.
    log: Log {
        /// "off", "error", "warn", "info", "debug" or "trace".
        level: LogLevel as Word<LogLevel> = LogLevel::Info, restart;
        /// The access log, a line a request: "stdout", "off", or the path of a file.
        access: AccessLog as AccessLogs = AccessLog::Stdout, restart;
        /// Of so many requests that succeed one has a line in the access log; every other one has its own.
        sample: u32 as Count<1, 1_000_000> = 1, restart;
        /// Form of the log: "json" or "text". The access log is always JSON.
        format: LogFormat as Word<LogFormat> = LogFormat::Json, restart;
    }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port))
}

/// Who may call the management API over TCP, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// What the audit record calls the caller.
    pub name: String,
    /// What the caller may do.
    pub role: Role,
    /// SHA-256 of the token.
    pub sha256: KeyDigest,
}

impl Form for AdminToken {
    const MEMBERS: &'static [Member<Self>] = members! {
        name: Id, required;
        role: Word<Role>, required;
        sha256: Digest, required;
    };
    fn blank() -> Self {
        Self { name: String::new(), role: Role::Viewer, sha256: KeyDigest([0; 32]) }
    }
}

/// What a caller of the management API may do; each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Also approves and blocks tools.
    Approver,
    /// Everything.
    Admin,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What needs a person.
    Error,
    /// What may need one.
    Warn,
    /// What happens.
    Info,
    /// More of it.
    Debug,
    /// All of it.
    Trace,
}

impl LogLevel {
    /// The level as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object a line.
    Json,
    /// For a person at a terminal.
    Text,
}

words! {
    Role { "viewer" = Role::Viewer, "approver" = Role::Approver, "admin" = Role::Admin }
    LogFormat { "json" = LogFormat::Json, "text" = LogFormat::Text }
    LogLevel {
        "off" = LogLevel::Off, "error" = LogLevel::Error, "warn" = LogLevel::Warn, "info" = LogLevel::Info,
        "debug" = LogLevel::Debug, "trace" = LogLevel::Trace,
    }
}

/// The path before `/mcp`: empty, or segments that need no encoding.
struct BasePath;
impl Codec for BasePath {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(reader, value, |path| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
            let segment = |part: &str| !part.is_empty() && part.chars().all(plain) && !matches!(part, "." | "..");
            let good = path.is_empty() || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment));
            match good {
                true => Ok(path.to_owned()),
                false => Err(format!(
                    "must begin with `/`, not end with it, and have segments of [A-Za-z0-9-_.~], not `{}`",
                    shown(path)
                )),
            }
        })
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// A member as the reference shows it.
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) restart: bool,
    pub(super) value: Json,
    pub(super) schema: Json,
}

fn described<F: Form>(form: &F) -> Vec<Described> {
    let member = |member: &Member<F>| Described {
        name: member.name,
        doc: member.doc,
        restart: member.restart,
        value: (member.write)(form),
        schema: (member.schema)(),
    };
    F::MEMBERS.iter().map(member).collect()
}
