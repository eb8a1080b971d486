//! Messages of bounded length.

use std::fmt::Display;

/// How many items a message lists before it counts the rest.
const LISTED: usize = 5;

/// The items, separated, the first few of them: `a, b and 3 more`.
pub(crate) fn list<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut items = items.into_iter();
    let shown: Vec<String> = items.by_ref().take(LISTED).map(|item| item.to_string()).collect();
    let text = shown.join(separator);
    match items.count() {
        0 => text,
        rest => format!("{text}{separator}and {rest} more"),
    }
}
