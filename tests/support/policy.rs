//! A policy file as data: objects by kind, each a TOML table, written out whole (contract §5).

use toml::{Table, Value};

use super::pin;

/// What a grant covers.
#[derive(Clone, Debug)]
pub enum Access {
    /// Tools of class `read`.
    Read,
    /// Every tool.
    Write,
    /// These tools.
    Selected(&'static [&'static str]),
}

/// A policy; starts with the organization `acme`, in good standing, and its project `support`.
#[derive(Clone, Debug)]
pub struct Policy(Table);

impl Default for Policy {
    fn default() -> Self {
        let mut policy = Self(Table::new());
        policy.add("organization", "id = 'acme'\nplan = 'business'\nstatus = 'active'\nsubscription = 'active'");
        policy.add("project", "id = 'support'\norganization = 'acme'");
        policy
    }
}

impl Policy {
    /// Adds an object, written as TOML.
    pub fn add(&mut self, kind: &str, toml: &str) -> &mut Self {
        let object = table(toml);
        let list = self.0.entry(kind).or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().expect("a list").push(Value::Table(object));
        self
    }

    /// The object of that kind whose `id`, `slug`, `name`, `tool` or `key` is `name`.
    pub fn find(&self, kind: &str, name: &str) -> Option<&Table> {
        let list = self.0.get(kind)?.as_array()?;
        list.iter().filter_map(Value::as_table).find(|object| is_called(object, name))
    }

    /// Replaces members of an object by those written as TOML.
    pub fn edit(&mut self, kind: &str, name: &str, toml: &str) -> &mut Self {
        let list = self.0.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten();
        let object = list.filter_map(Value::as_table_mut).find(|object| is_called(object, name));
        object.unwrap_or_else(|| panic!("no {kind} is called {name}")).extend(table(toml));
        self
    }

    /// Removes every object of that kind and name.
    pub fn remove(&mut self, kind: &str, name: &str) -> &mut Self {
        if let Some(list) = self.0.get_mut(kind).and_then(Value::as_array_mut) {
            list.retain(|object| object.as_table().is_none_or(|object| !is_called(object, name)));
        }
        self
    }

    /// Adds a server of `acme`.
    pub fn server(&mut self, slug: &str, url: &str, more: &str) -> &mut Self {
        self.add("server", &format!("organization = 'acme'\nslug = '{slug}'\nurl = '{url}'\n{more}"))
    }

    /// Adds a key of `acme` by its token.
    pub fn key(&mut self, id: &str, token: &str, more: &str) -> &mut Self {
        let digest = pin::hex(token.as_bytes());
        let mut object = table(&format!(
            "id = '{id}'\norganization = 'acme'\nproject = 'support'\nenvironment = 'production'\nsha256 = '{digest}'"
        ));
        object.extend(table(more));
        self.add("key", &toml::to_string(&object).expect("TOML"))
    }

    /// Grants a server to a key.
    pub fn grant(&mut self, key: &str, server: &str, access: &Access) -> &mut Self {
        let access = match access {
            Access::Read => "access = 'read'".to_owned(),
            Access::Write => "access = 'write'".to_owned(),
            Access::Selected(tools) => format!("access = 'selected'\ntools = {tools:?}"),
        };
        self.add("grant", &format!("key = '{key}'\nserver = '{server}'\n{access}"))
    }

    /// Pins a tool of `acme` by its definition; `class` is `read` or `write`.
    pub fn approve(&mut self, server: &str, definition: &serde_json::Value, class: &str) -> &mut Self {
        let mut object = table(&format!("organization = 'acme'\nserver = '{server}'\nclass = '{class}'\nlabels = []"));
        object.insert("sha256".to_owned(), Value::String(pin::pin(definition)));
        object.insert("tool".to_owned(), Value::String(definition["name"].as_str().expect("a name").to_owned()));
        self.add("approval", &toml::to_string(&object).expect("TOML"))
    }

    /// Whether a tool of a server has a pin.
    pub fn pins(&self, server: &str, tool: &str) -> bool {
        let list = self.0.get("approval").and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_table).any(|object| {
            object.get("server").and_then(Value::as_str) == Some(server)
                && object.get("tool").and_then(Value::as_str) == Some(tool)
        })
    }

    /// The file.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.0).expect("TOML")
    }
}

/// Reads TOML that a test wrote.
pub fn table(toml: &str) -> Table {
    toml.parse().unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

fn is_called(object: &Table, name: &str) -> bool {
    ["id", "slug", "name", "tool", "key"].iter().any(|m| object.get(*m).and_then(Value::as_str) == Some(name))
}
