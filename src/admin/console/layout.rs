//! What every page has: head, navigation, messages; and texts in which hidden characters stand out.

use maud::{DOCTYPE, Markup, html};

use super::{HOME, Page};
use crate::admin::{auth::role_name, visible};

/// A page of who is logged in.
pub(super) fn page(asked: &Page<'_>, title: &str, body: &Markup) -> Markup {
    let places = [("tools", "Tools"), ("keys", "Keys and grants"), ("audit", "Audit")];
    let nav = html! {
        nav {
            @for (place, name) in places { a href={ (HOME) "/" (place) } { (name) } " " }
            span.who { (asked.caller.name) ", " (role_name(asked.caller.role)) }
            form method="post" action={ (HOME) "/logout" } {
                input type="hidden" name="form" value=(asked.session.form());
                button { "Log out" }
            }
        }
    };
    document(title, &nav, body)
}

/// The login.
pub(super) fn login(why: Option<&str>) -> Markup {
    let body = html! {
        h1 { "Toolgate" }
        @if let Some(why) = why { (told(why)) }
        form.login method="post" action={ (HOME) "/login" } {
            label for="token" { "A token of the management API" }
            input #token type="password" name="token" required autofocus autocomplete="current-password";
            button { "Log in" }
        }
    };
    document("Toolgate: log in", &html! {}, &body)
}

/// A message without a login.
pub(super) fn message(text: &str) -> Markup {
    document("Toolgate", &html! {}, &html! { (told(text)) p { a href=(HOME) { "To the console" } } })
}

/// Why something was not done.
pub(super) fn told(text: &str) -> Markup {
    html! { p.told role="alert" { (marked(text)) } }
}

fn document(title: &str, nav: &Markup, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                link rel="stylesheet" href={ (HOME) "/style.css" };
            }
            body { (nav) main { (body) } }
        }
    }
}

/// A text in which characters that hide, move or imitate are written out and stand out.
pub(super) fn marked(text: &str) -> Markup {
    let text = visible(text);
    let mut pieces: Vec<(bool, &str)> = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("⟨U+") {
        let Some((code, after)) = after.split_once('⟩') else { break };
        pieces.push((false, before));
        pieces.push((true, code));
        rest = after;
    }
    pieces.push((false, rest));
    html! {
        @for (hidden, piece) in pieces {
            @if hidden { mark title="a character that a reader does not see, or takes for another" { "U+" (piece) } }
            @else { (piece) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn hidden_characters_stand_out_and_markup_is_text() {
        let shown = marked("a\u{200b}<b>&\"").0;
        assert!(shown.starts_with("a<mark") && shown.ends_with(">U+200B</mark>&lt;b&gt;&amp;&quot;"), "{shown}");
        assert_eq!(marked("⟨U+ no end").0, "⟨U+ no end");
    }
}
