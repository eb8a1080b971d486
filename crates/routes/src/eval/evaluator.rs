//! What a gateway does with a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use mesh_api::names::GUARD_HEADER;

use super::answer::{Answer, Forward, Refusal};
use super::chain::{ChainState, Selection};
use super::host::{self, Hosts};
use super::merge::{self, Entry, Listener, Mesh, Unservable, VirtualHost};
use super::path::{self, PathNormalization, Sent};
use super::request::{Request, Seen};
use super::route::{Action, Onward, Route};
use crate::input::ObjectKey;

/// A gateway pod with the routes that it holds.
#[derive(Clone, Debug)]
pub struct Evaluator {
    paths: PathNormalization,
    plain: BTreeMap<u32, Listener>,
    /// By port, and on it by server name.
    tls: BTreeMap<u32, Hosts<Arc<Listener>>>,
    /// Where connections come in, with the Gateways whose routes are there.
    entries: Vec<(Entry, Vec<ObjectKey>)>,
}

impl Evaluator {
    /// The pod, as istiod would configure it from these objects.
    ///
    /// # Errors
    /// An object that istiod or Envoy would refuse, or that holds what is not understood here. Objects that no Gateway of
    /// the pod has a use for are not looked at.
    pub fn new(mesh: &Mesh<'_>) -> Result<Self, Unservable> {
        let mut plain = BTreeMap::new();
        let mut tls: BTreeMap<u32, BTreeMap<String, Arc<Listener>>> = BTreeMap::new();
        let mut entries = Vec::new();
        for listener in merge::listeners(mesh)? {
            let gateways: Vec<ObjectKey> = listener.gateways.iter().cloned().collect();
            let port = listener.port;
            match listener.server_names.clone() {
                None => {
                    entries.push((Entry::port(port), gateways));
                    plain.insert(port, listener);
                }
                Some(names) => {
                    let listener = Arc::new(listener);
                    let by_name = tls.entry(port).or_default();
                    for name in names {
                        let name = name.to_ascii_lowercase();
                        entries.push((Entry { port, server_name: Some(name.clone()) }, gateways.clone()));
                        by_name.entry(name).or_insert_with(|| Arc::clone(&listener));
                    }
                }
            }
        }
        entries.sort();
        let tls = tls.into_iter().map(|(port, names)| (port, Hosts::new(names))).collect();
        Ok(Self { paths: mesh.proxy.paths, plain, tls, entries })
    }

    /// Where connections come in, sorted: each port, and where it does TLS each server name, which may begin with `*`.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _)| entry)
    }

    /// Where connections come in that meet routes of this Gateway.
    pub fn entries_of<'e>(&'e self, gateway: &'e ObjectKey) -> impl Iterator<Item = &'e Entry> {
        let of_gateway = move |(_, gateways): &&(Entry, Vec<ObjectKey>)| gateways.contains(gateway);
        self.entries.iter().filter(of_gateway).map(|(entry, _)| entry)
    }

    /// What the gateway does with the request. `login` says whether the auth service that is asked, if one is, lets it
    /// pass.
    ///
    /// The chain is taken to be in force on the connection. A connection that is older than the chain does not have it,
    /// and gets what [`ChainState::Absent`] gives.
    pub fn answer(&self, entry: &Entry, request: &Request, chain: &ChainState, login: bool) -> Answer {
        let (named, path) = match path::read(&request.method, &request.path, self.paths) {
            Sent::Path { host, path } => (host, path),
            Sent::Unroutable => return Answer::NoRoute,
            Sent::Refused => return Answer::Refused(Refusal::Path),
        };
        let authority = named.as_deref().unwrap_or(&request.host);
        if !host::is_valid(authority) {
            return Answer::Refused(Refusal::Host);
        }
        let Some(seen) = Seen::of(request, authority, &path) else {
            return Answer::Refused(Refusal::Header);
        };
        let host = host::chosen_by(authority);
        let Some((virtual_host, tls)) = self.virtual_host(entry, &host) else { return Answer::NoRoute };
        if virtual_host.redirect && !tls {
            return Answer::HttpsRedirect;
        }
        guarded(virtual_host, &path, seen, chain, login)
    }

    /// The virtual host, and whether the connection has TLS.
    fn virtual_host(&self, entry: &Entry, host: &str) -> Option<(&VirtualHost, bool)> {
        if let Some(listener) = self.plain.get(&entry.port) {
            return Some((listener.hosts.best(host)?, false));
        }
        let server_name = entry.server_name.as_deref().unwrap_or(host).to_ascii_lowercase();
        let listener = self.tls.get(&entry.port)?.best(&server_name)?;
        Some((listener.hosts.best(host)?, true))
    }
}

/// The route, chosen once for the chain and, where the chain changed a header, once more.
fn guarded(host: &VirtualHost, path: &str, mut seen: Seen, chain: &ChainState, login: bool) -> Answer {
    let Some((first, matched)) = choose(host, path, &seen) else { return Answer::NoRoute };
    match chain.select(&first.reference.name) {
        Selection::None => act(first, matched, path, None),
        Selection::Probe => {
            // The chain answers for the route, whose own answer is that of a gateway without it.
            Answer::Direct { status: 200, body: String::new(), route: first.reference.clone() }
        }
        Selection::Unknown => {
            seen.remove_spellings(GUARD_HEADER);
            again(host, path, &seen, None)
        }
        Selection::Check(provider, _) if !login => {
            Answer::Denied { provider: provider.to_owned(), route: first.reference.clone() }
        }
        Selection::Check(provider, token) => {
            seen.remove_spellings(GUARD_HEADER);
            seen.set(GUARD_HEADER, token);
            again(host, path, &seen, Some(provider))
        }
    }
}

fn again(host: &VirtualHost, path: &str, seen: &Seen, check: Option<&str>) -> Answer {
    match choose(host, path, seen) {
        Some((route, matched)) => act(route, matched, path, check),
        None => Answer::NoRoute,
    }
}

/// The first route that matches, and the length of the part of the path that a rewrite replaces.
fn choose<'h>(host: &'h VirtualHost, path: &str, seen: &Seen) -> Option<(&'h Route, usize)> {
    let bare = path.split('?').next().unwrap_or_default();
    host.routes.iter().find_map(|route| Some((route.as_ref(), route.matcher.matches(bare, seen)?)))
}

fn act(route: &Route, matched: usize, path: &str, check: Option<&str>) -> Answer {
    let reference = route.reference.clone();
    match route.action.as_ref() {
        Action::Direct { status, body } => {
            Answer::Direct { status: *status, body: body.clone(), route: reference }
        }
        Action::Forward(onward) => {
            let Onward { targets, rewrite, removed_headers, set_headers, timeout } = onward;
            let path = match (rewrite, path.get(matched..)) {
                (Some(rewrite), Some(rest)) => format!("{rewrite}{rest}"),
                _ => path.to_owned(),
            };
            Answer::Forward(Box::new(Forward {
                route: reference,
                targets: targets.clone(),
                path,
                removed_headers: removed_headers.clone(),
                set_headers: set_headers.clone(),
                timeout: *timeout,
                check: check.map(str::to_owned),
            }))
        }
    }
}
