//! Whether anything has changed that a host is compiled from.

use sha2::{Digest as _, Sha256};

use crate::auth::RouteAuth;
use crate::host::GatewayContext;
use crate::prepare::PreparedRoute;
use crate::table::Claimant;

/// A digest of everything that [`crate::host::compile`] reads. A cryptographic one, so that nobody can make a change that
/// goes unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// Writes parts so that one cannot be taken for another wherever it ends. They are collected and digested at once, which
/// takes a fraction of the time.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: usize) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn digest(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(&self.0).into())
    }

    fn option(&mut self, text: Option<&str>) {
        self.number(usize::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn list<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t str>) {
        self.number(texts.len());
        texts.for_each(|text| self.text(text));
    }
}

/// The fingerprint of all that the hosts of a gateway have in common. `key_mark` tells one key of tokens from another.
pub(crate) fn of_gateway(context: &GatewayContext<'_, '_>, key_mark: &str) -> Fingerprint {
    let mut writer = Writer::default();
    writer.text(key_mark);
    writer.text(&context.input.settings.namespace);
    writer.text(&context.input.settings.cluster_domain);
    writer.number(usize::from(context.facts.is_some()));
    if let Some(facts) = context.facts {
        writer.list(facts.workload_namespaces.iter().map(String::as_str));
    }
    writer.number(usize::from(context.chain.paths_not_normalized));
    writer.digest()
}

/// The fingerprint of a host with these claimants. `writer` is there to be used again and again.
pub(crate) fn of_host(
    host: &str,
    claimants: &[Claimant<'_>],
    context: &GatewayContext<'_, '_>,
    gateway: &Fingerprint,
    writer: &mut Writer,
) -> Fingerprint {
    writer.0.clear();
    writer.0.extend_from_slice(&gateway.0);
    writer.text(host);
    writer.number(claimants.len());
    for claimant in claimants {
        let prepared = claimant.prepared;
        writer.text(&prepared.key.namespace);
        writer.text(&prepared.key.name);
        writer.number(usize::from(claimant.admission.shared));
        let default = prepared.default_provider.as_ref();
        writer.number(usize::from(default.is_some()));
        if let Some(default) = default {
            writer.list(default.identity_headers.iter().map(String::as_str));
        }
        writer.number(prepared.routes.len());
        for route in &prepared.routes {
            of_route(route, context, writer);
        }
    }
    writer.digest()
}

fn of_route(route: &PreparedRoute<'_>, context: &GatewayContext<'_, '_>, writer: &mut Writer) {
    match &route.path {
        Ok(path) => {
            writer.number(1 + path.kind as usize);
            writer.text(&path.value);
        }
        Err(_) => writer.number(0),
    }
    writer.list(route.methods.iter().map(|method| method.as_str()));
    match &route.backends.list {
        Ok(list) => {
            writer.number(1 + list.len());
            for backend in list {
                writer.text(backend.service);
                writer.text(backend.namespace);
                writer.number(usize::from(backend.port));
                writer.number(backend.weight as usize);
            }
        }
        Err(_) => writer.number(0),
    }
    match &route.auth {
        RouteAuth::Open => writer.number(0),
        RouteAuth::Closed(..) => writer.number(1),
        RouteAuth::Protected(provider) => {
            writer.number(2);
            writer.text(provider.id.as_str());
            let older = crate::host::enforced_before(provider, context.chain).map(|(id, _)| id.as_str());
            writer.option(older);
        }
    }
    writer.option(route.rewrite.as_deref());
    writer.option(route.timeout.as_deref());
    writer.list(route.backends.namespaces.iter().copied());
    writer.list(context.identity.of(&route.backends.namespaces).iter().copied());
}
