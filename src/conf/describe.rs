//! The conf as the commands `config dump`, `config schema` and `config explain` show it, from the tables that read it.
//!
//! **Invariant.** What is shown of a value holds no secret: a password in a URL is masked.

use serde_json::{Map, Value as Json, json};
use url::Url;

use super::{
    fault::nearest,
    guardrail::GuardrailForm,
    objects::GrantForm,
    options::{Conf, Described},
    policy::KINDS,
    read::schema_of,
    reference::toml,
};
use crate::model::records::{Approval, Key, Organization, Project, Server};

/// What stands for a secret.
const MASK: &str = "***";

/// The conf that is in force, as TOML: what was written and the defaults of what was not, secrets masked.
#[must_use]
pub fn dump(conf: &Conf) -> String {
    let mut defaults = options(&Conf::default()).into_iter();
    let mut out = String::from("# The conf that is in force; secrets are masked.\n");
    conf.describe(|section, _, members| {
        out.push_str(&format!("\n[{section}]\n"));
        for member in members {
            let default = defaults.next().is_some_and(|(_, default)| default.value == member.value);
            let mark = if default { "  # default" } else { "" };
            out.push_str(&format!("{} = {}{mark}\n", member.name, toml(&masked(&member.value))));
        }
    });
    out
}

/// The same as JSON: `{ section: { option: value } }`.
#[must_use]
pub fn values(conf: &Conf) -> Json {
    let mut out = Map::new();
    conf.describe(|section, _, members| {
        let members: Map<String, Json> =
            members.iter().map(|member| (member.name.to_owned(), masked(&member.value))).collect();
        out.insert(section.to_owned(), members.into());
    });
    Json::Object(out)
}

/// JSON Schema of a conf file, for editors. It is never stricter than `toolgate check`, which alone decides.
#[must_use]
pub fn schema() -> Json {
    let mut sections = Map::new();
    Conf::default().describe(|section, about, members| {
        let mut properties = Map::new();
        for Described { name, doc, value, schema, restart } in members {
            let mut schema = schema;
            if let Some(schema) = schema.as_object_mut() {
                let restart = if restart { " Changed by a restart only." } else { "" };
                schema.insert("description".to_owned(), format!("{}{restart}", text(doc)).into());
                schema.insert("default".to_owned(), value);
            }
            properties.insert(name.to_owned(), schema);
        }
        let section_schema = json!({
            "type": "object", "description": text(about), "properties": properties, "additionalProperties": false,
        });
        sections.insert(section.to_owned(), section_schema);
    });
    document("Conf of Toolgate", &sections)
}

/// JSON Schema of a policy file, for editors.
#[must_use]
pub fn policy_schema() -> Json {
    let forms = [
        schema_of::<Organization>(),
        schema_of::<Project>(),
        schema_of::<Server>(),
        schema_of::<Key>(),
        schema_of::<GrantForm>(),
        schema_of::<Approval>(),
        schema_of::<GuardrailForm>(),
    ];
    let kinds = KINDS.iter().zip(forms);
    let kinds = kinds.map(|(kind, form)| ((*kind).to_owned(), json!({ "type": "array", "items": form }))).collect();
    document("Policy of Toolgate", &kinds)
}

/// What an option is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// `section.option`
    pub key: String,
    /// What it does.
    pub about: String,
    /// What may be written.
    pub form: String,
    /// The default; secrets masked.
    pub default: Json,
    /// What is in force, if a conf was given; secrets masked.
    pub value: Option<Json>,
    /// Whether only a restart changes it.
    pub restart: bool,
}

/// Explains an option (`limits.in_flight`), or every option of a section (`limits`).
///
/// # Errors
/// What the key may have meant, if there is no such option.
pub fn explain(key: &str, conf: Option<&Conf>) -> Result<Vec<Explained>, String> {
    let values = conf.map(options);
    let mut all = Vec::new();
    for (index, (name, option)) in options(&Conf::default()).into_iter().enumerate() {
        all.push(Explained {
            about: text(option.doc),
            form: form(&option.schema),
            default: masked(&option.value),
            value: values.as_ref().and_then(|values| values.get(index)).map(|(_, option)| masked(&option.value)),
            restart: option.restart,
            key: name,
        });
    }
    let asked = |explained: &Explained| {
        explained.key == key || explained.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))
    };
    if all.iter().any(asked) {
        all.retain(asked);
        return Ok(all);
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or("").to_owned();
    let alike = all.iter().map(|explained| explained.key.as_str()).filter(|name| last(name) == last(key));
    let meant = alike.clone().next().or_else(|| nearest(key, all.iter().map(|explained| explained.key.as_str())));
    Err(match meant {
        Some(meant) => format!("there is no option `{key}`: did you mean `{meant}`?"),
        None => format!("there is no option `{key}`: `toolgate config dump` names them all"),
    })
}

/// Every option by its key, in order.
fn options(conf: &Conf) -> Vec<(String, Described)> {
    let mut all = Vec::new();
    conf.describe(|section, _, members| {
        all.extend(members.into_iter().map(|member| (format!("{section}.{}", member.name), member)));
    });
    all
}

fn document(title: &str, properties: &Map<String, Json>) -> Json {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn text(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A schema in the words of a person.
fn form(schema: &Json) -> String {
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(Json::to_string).collect::<Vec<_>>().join(", ");
    }
    if let Some(word) = schema.get("const") {
        return word.to_string();
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let variable = |choice: &&Json| choice["pattern"] == r"\$\{";
        let forms: Vec<String> = choices.iter().filter(|choice| !variable(choice)).map(form).collect();
        return forms.join(", or ");
    }
    match schema["type"].as_str() {
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => format!("a whole number from {} to {}", schema["minimum"], schema["maximum"]),
        Some("array") => format!("a list; each entry: {}", form(&schema["items"])),
        Some("object") => {
            let members = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            format!("a table {{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        _ => "a string".to_owned(),
    }
}

/// A value without its secrets.
fn masked(value: &Json) -> Json {
    match value {
        Json::String(text) if text.contains("://") => Json::from(masked_url(text)),
        Json::Array(list) => list.iter().map(masked).collect(),
        Json::Object(members) => members.iter().map(|(name, value)| (name.clone(), masked(value))).collect(),
        other => other.clone(),
    }
}

fn masked_url(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return MASK.to_owned() };
    let secret = |name: &str| ["pass", "secret", "token"].iter().any(|part| name.to_ascii_lowercase().contains(part));
    let hidden = url.password().is_some() && url.set_password(Some(MASK)).is_err();
    if url.query_pairs().any(|(name, _)| secret(&name)) {
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let mut query = url.query_pairs_mut();
        query.clear();
        for (name, value) in &pairs {
            query.append_pair(name, if secret(name) { MASK } else { value });
        }
    }
    match hidden {
        true => MASK.to_owned(),
        // An origin or an address is shown as it was written, not as a URL is spelled out.
        false if url.password().is_none() && url.query().is_none() => text.to_owned(),
        false => url.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;
    use crate::conf::{from_text, reference};

    fn conf(text: &str) -> Conf {
        let outcome = from_text("toolgate.toml", text, &|_| None);
        outcome.into_loaded().map_err(|rejected| rejected.sources.render(&rejected.faults)).unwrap().conf
    }

    #[test]
    fn what_is_dumped_loads_to_the_same_conf() {
        let written = "[gateway]\nlisten = ['127.0.0.1:1', { address = '[::1]:2', tls = { certificate = 'c.pem', key = '/k' } }]\n\
             [limits]\nin_flight = 7\n[timeouts]\ndrain = '1m'\n[policy]\nfiles = []\n";
        let conf = conf(written);
        let text = dump(&conf);
        assert_eq!(super::tests::conf(&text), conf, "{text}");
        assert!(text.contains("in_flight = 7\n") && text.contains("list_cache = \"64MiB\"  # default\n"), "{text}");
        assert_eq!(values(&conf)["limits"]["in_flight"], 7);
    }

    #[test]
    fn no_secret_is_shown() {
        for (url, shown) in [
            ("postgres://gate:hunter2@db/x", "postgres://gate:***@db/x"),
            ("postgres://db/x?user=gate&password=hunter2", "postgres://db/x?user=gate&password=***"),
            ("rediss://:hunter2@cache:6380/1", "rediss://:***@cache:6380/1"),
            ("redis://cache", "redis://cache"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
        let conf = conf("[store]\nurl = 'postgres://gate:hunter2@db/x'\n[policy]\nfiles = []\n");
        let explained = explain("store", Some(&conf)).unwrap();
        let all = format!("{}{}{explained:?}", dump(&conf), values(&conf));
        assert!(!all.contains("hunter2") && all.contains("gate:***@db"), "{all}");
    }

    #[test]
    fn options_and_sections_are_explained() {
        let conf = conf("[limits]\nin_flight = 7\n[policy]\nfiles = []\n");
        let [one] = explain("limits.in_flight", Some(&conf)).unwrap().try_into().unwrap();
        assert_eq!(one.form, "a whole number from 1 to 1000000");
        assert_eq!((one.default, one.value, one.restart), (json!(10_000), Some(json!(7)), false));
        assert!(one.about.contains("Requests at one time"), "{}", one.about);
        assert!(explain("gateway.threads", None).unwrap()[0].restart);
        assert_eq!(explain("limits", None).unwrap().len(), 6);
        for (key, form) in [
            ("timeouts.drain", "a duration such as \"30s\" or \"250ms\", from 0s to 1d"),
            ("limits.arguments", "a size such as \"256KiB\" or \"1MiB\", from 1B to 1GiB"),
            ("log.format", "\"json\", \"text\""),
            ("rate_limits.failed_auth", "a rate: N/s, N/min or N/hour, or \"off\""),
            ("egress.allow_http", "true or false"),
            ("gateway.listen", "a list; each entry: a string, or a table { address, tls }"),
        ] {
            assert_eq!(explain(key, None).unwrap()[0].form, form, "{key}");
        }
        for (key, meant) in [("in_flight", "limits.in_flight"), ("limit.in_flight", "limits.in_flight")] {
            let why = explain(key, None).unwrap_err();
            assert!(why.contains(&format!("did you mean `{meant}`")), "{why}");
        }
    }

    #[test]
    fn every_option_stands_in_the_schema_with_its_meaning() {
        let schema = schema();
        for (key, option) in options(&Conf::default()) {
            let (section, name) = key.split_once('.').unwrap();
            let found = &schema["properties"][section]["properties"][name];
            assert!(found["description"].as_str().unwrap().starts_with(&text(option.doc)), "{key}: {found}");
            assert_eq!(found["default"], option.value, "{key}");
        }
        assert!(reference().contains("in_flight"));
    }
}
