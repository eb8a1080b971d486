//! What is known of Envoy's releases, and of the proxies that Istio builds of them.

use std::collections::BTreeMap;

/// The oldest Istio that is supported.
pub(crate) const OLDEST_ISTIO: &str = "1.24";
/// The Envoy in its proxy.
pub(crate) const OLDEST_ENVOY: &str = "1.32";

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Extension,
    Field,
    Lua,
    Attribute,
    Metadata,
    Istio,
}

struct Entry {
    /// What a field holds, or a method returns.
    holds: Option<String>,
    /// The release that brought it, or the versions of Istio that have it.
    since: String,
    source: String,
}

/// The entries of `known.txt`.
pub(crate) struct Known(BTreeMap<(Kind, String), Entry>);

impl Known {
    pub(crate) fn read() -> Self {
        let lines = include_str!("known.txt").lines();
        let entries = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
            let columns: Vec<&str> =
                line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
            let (kind, name, holds, since, source) = match columns[..] {
                ["field", name, holds, since, source] => (Kind::Field, name, Some(holds), since, source),
                ["extension", name, since, source] => (Kind::Extension, name, None, since, source),
                ["lua", name, holds, since, source] => (Kind::Lua, name, Some(holds), since, source),
                ["attribute", name, since, source] => (Kind::Attribute, name, None, since, source),
                ["metadata", name, since, source] => (Kind::Metadata, name, None, since, source),
                ["istio", name, holds, since, source] => (Kind::Istio, name, Some(holds), since, source),
                _ => panic!("known.txt: {line}"),
            };
            let entry =
                Entry { holds: holds.map(str::to_owned), since: since.to_owned(), source: source.to_owned() };
            ((kind, name.to_owned()), entry)
        });
        Self(entries.collect())
    }

    /// What a field holds: a message, a map of messages, or a plain value; what a method returns; whether a part of
    /// Istio's schema is a map.
    pub(crate) fn holds(&self, kind: Kind, name: &str) -> Option<&str> {
        self.0.get(&(kind, name.to_owned()))?.holds.as_deref()
    }

    /// Everything of a kind.
    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.0.keys().filter(move |(of, _)| *of == kind).map(|(_, name)| name.as_str())
    }

    /// Why a thing must not be used, if it must not.
    pub(crate) fn fault(&self, kind: Kind, name: &str) -> Option<String> {
        let Some(Entry { since, source, .. }) = self.0.get(&(kind, name.to_owned())) else {
            return Some(format!("{kind:?} {name}: known.txt does not say since when Envoy has it"));
        };
        let there = match kind {
            Kind::Extension => since.split(' ').any(|version| version == OLDEST_ISTIO),
            Kind::Istio => number(since) <= number(OLDEST_ISTIO),
            Kind::Field | Kind::Lua | Kind::Attribute | Kind::Metadata => {
                number(since) <= number(OLDEST_ENVOY)
            }
        };
        (!there).then(|| format!("{kind:?} {name}: {since} brought it ({source})"))
    }
}

/// `1.7` comes before `1.32`.
fn number(release: &str) -> (u32, u32) {
    let (major, minor) = release.split_once('.').unwrap_or_else(|| panic!("release {release}"));
    (major.parse().unwrap(), minor.parse().unwrap())
}
