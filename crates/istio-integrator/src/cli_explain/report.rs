//! The answer.

use serde::Serialize;

use super::world::Gap;

/// The answer, in the form of `-o json`. Fields may be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The request, as `namespace/name`.
    pub(super) request: String,
    /// Whether all of it is served.
    pub(super) served: bool,
    /// Why, in a sentence.
    pub(super) summary: String,
    pub(super) hosts: Vec<Host>,
    pub(super) binding: Option<Binding>,
    /// Who must have logged in.
    pub(super) auth: Option<String>,
    pub(super) routes: Vec<Route>,
    pub(super) conditions: Vec<Condition>,
    pub(super) objects: Vec<Object>,
    pub(super) gateway: Option<Gateway>,
    /// Whether an integrator runs.
    pub(super) operator: String,
    /// What was not read.
    pub(super) unseen: Vec<Gap>,
    pub(super) next_steps: Vec<String>,
}

/// A host of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Host {
    pub(super) name: String,
    /// Where it comes from.
    pub(super) source: String,
    /// The URL under which it is served, if it is.
    pub(super) url: Option<String>,
}

/// The binding that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding {
    /// The name; nothing where no binding serves the request.
    pub(super) name: Option<String>,
    /// Why this one.
    pub(super) why: String,
    /// The others, each with why it is not the one.
    pub(super) others: Vec<String>,
}

/// A route of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Route {
    /// What it matches.
    pub(super) matches: String,
    /// Where it leads.
    pub(super) backends: Vec<String>,
    /// What became of it.
    pub(super) reason: String,
    pub(super) message: String,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// What to do, where it does not hold.
    pub(super) remedy: Option<String>,
    /// Whether it was computed now, from what could be read, and not taken from the status.
    pub(super) computed: bool,
}

/// An object that holds the routes or their logins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    pub(super) kind: String,
    /// Its name, as `namespace/name`.
    pub(super) name: String,
    /// What it is like.
    pub(super) state: String,
    /// Whether it is there, and ours.
    pub(super) good: bool,
}

/// The gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gateway {
    /// Its name, as `namespace/name`.
    pub(super) name: String,
    /// Its pods, each with its address and whether it is ready; nothing where they could not be read.
    pub(super) pods: Option<Vec<Pod>>,
    /// Where clients reach it.
    pub(super) addresses: Vec<String>,
}

/// A pod of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) ready: bool,
}
