//! What many hosts have in common, worked out once for each compile.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use mesh_api::header::dash_spellings;
use mesh_api::integrator::{PathMatch, PathMatchType};
use mesh_api::istio::{HeaderMatches, HttpMatch, StringMatch};
use mesh_api::names;

use crate::auth::Identified;
use crate::guard::{ProviderId, TokenKey};
use crate::neighbours;

/// How many paths are remembered for each provider: what is on many hosts is among the first.
const PATHS: usize = 1024;

/// The own pages of a provider below each path, or nothing where they cannot be told.
type Pages = HashMap<(PathMatchType, String), Option<Vec<HttpMatch>>>;

/// What was worked out in this compile.
pub(crate) struct Memo<'k> {
    token_key: &'k TokenKey,
    guards: RefCell<HashMap<ProviderId, HeaderMatches>>,
    /// By the identity headers.
    removals: RefCell<HashMap<Vec<String>, Vec<String>>>,
    /// By the id of the provider and whether paths are not normalized.
    pages: RefCell<HashMap<(ProviderId, bool), Pages>>,
}

impl<'k> Memo<'k> {
    pub(crate) fn new(token_key: &'k TokenKey) -> Self {
        Self {
            token_key,
            guards: RefCell::default(),
            removals: RefCell::default(),
            pages: RefCell::default(),
        }
    }

    /// The guard header with the token of the provider.
    pub(crate) fn guard(&self, id: &ProviderId) -> HeaderMatches {
        if let Some(guard) = self.guards.borrow().get(id) {
            return guard.clone();
        }
        let token = StringMatch::Exact(self.token_key.token(id));
        let guard = HeaderMatches::from(BTreeMap::from([(names::GUARD_HEADER.to_owned(), token)]));
        self.guards.borrow_mut().insert(id.clone(), guard.clone());
        guard
    }

    /// Every spelling of these identity headers, sorted.
    pub(crate) fn removal(&self, headers: &[&str]) -> Vec<String> {
        if headers.is_empty() {
            return Vec::new();
        }
        let key: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
        let mut removals = self.removals.borrow_mut();
        let spelt = removals.entry(key).or_insert_with(|| {
            let all: BTreeSet<String> = headers.iter().flat_map(|header| dash_spellings(header)).collect();
            all.into_iter().collect()
        });
        spelt.clone()
    }

    /// See [`neighbours::own_pages`].
    pub(crate) fn own_pages(
        &self,
        path: &PathMatch,
        provider: &Identified,
        not_normalized: bool,
    ) -> Option<Vec<HttpMatch>> {
        let mut pages = self.pages.borrow_mut();
        let known = pages.entry((provider.id.clone(), not_normalized)).or_default();
        let key = (path.kind, path.value.clone());
        if let Some(matches) = known.get(&key) {
            return matches.clone();
        }
        let matches = neighbours::own_pages(path, provider, not_normalized);
        if known.len() < PATHS {
            known.insert(key, matches.clone());
        }
        matches
    }
}
