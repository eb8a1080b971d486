//! What is refused because a backend, or the auth service, may read a path in another way.

use routes::guard::Provider;

use super::text::{covers_strictly, decoded, is_at_or_below};
use super::{Asked, Login, METHODS, PathKey, Reading};

impl<'w> Reading<'w> {
    /// The routes of a host whose paths are not free to all.
    pub(super) fn guarded(&self, claims: &[Asked<'w>]) -> Vec<PathKey> {
        let strict = |key: &PathKey| {
            let units = METHODS.iter().copied().map(Some).chain([None]);
            let mut winners = units.filter_map(|method| self.winner(claims, key, method));
            winners.any(|winner| self.login(&winner) != Login::Open)
        };
        Self::keys(claims).into_iter().filter(strict).collect()
    }

    /// Rule 9: what an open prefix must refuse beside protected paths, and what it may refuse.
    pub(super) fn neighbours(
        &self,
        claims: &[Asked<'w>],
        (exact, prefix): &PathKey,
        path: &str,
        method: &str,
    ) -> (Option<u16>, Option<u16>) {
        let guarded = self.guarded(claims);
        if *exact || guarded.is_empty() {
            return (None, None);
        }
        let rest = if prefix == "/" { path } else { path.get(prefix.len()..).unwrap_or_default() };
        let lower = rest.to_ascii_lowercase();
        let codes = ["%2f", "%5c", "%2e", "%25", "%3f", "%3b", "%7f", "%c0", "%c1", ";", "//", "\\", "%20/"];
        let mut ambiguous = codes.iter().any(|code| lower.contains(code)) || lower.ends_with("%20");
        ambiguous |= lower.split('%').skip(1).any(|code| {
            let digits = code.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            digits.is_some_and(|byte| byte < 0x20)
        });
        if self.world.not_normalized {
            ambiguous |= rest.split('/').any(|segment| matches!(segment, "." | ".."));
            ambiguous |= decoded(rest, |byte| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte)) != rest;
        }
        // The protected paths below the prefix that this is another spelling of.
        let spelt = |same: &dyn Fn(&str) -> String, asked: bool| {
            guarded.iter().any(|key| {
                let (exact, guarded) = key;
                is_at_or_below(&same(guarded), &same(prefix))
                    && covers_strictly(*exact, &same(guarded), &same(path))
                    && !covers_strictly(*exact, guarded, path)
                    && (!asked || self.guards(claims, key, method))
            })
        };
        let must = ambiguous || spelt(&|text| text.to_ascii_lowercase(), true);
        let may = spelt(&|text| decoded(text, |_| true).to_ascii_lowercase(), false);
        (must.then_some(400), may.then_some(400))
    }

    /// Whether this is another spelling of a protected path: an open route beside it may refuse it even where it is not
    /// its own.
    pub(crate) fn is_another_spelling(&self, gateway: usize, host: &str, path: &str) -> bool {
        let bare = path.split('?').next().unwrap_or_default();
        let plain = |text: &str| decoded(text, |_| true).to_ascii_lowercase();
        let guarded = self.guarded(&self.claims(gateway, host));
        guarded.iter().any(|(exact, guarded)| {
            covers_strictly(*exact, &plain(guarded), &plain(bare)) && !covers_strictly(*exact, guarded, bare)
        })
    }

    /// Whether the path asks for a login, or is closed, for this method.
    pub(super) fn guards(&self, claims: &[Asked<'w>], key: &PathKey, method: &str) -> bool {
        self.taker(claims, key, method).is_some_and(|taker| self.login(&taker) != Login::Open)
    }

    /// Rule 5: what a protected route must refuse because the auth service answers it to everybody, and what it may.
    pub(super) fn own_pages(provider: &Provider, path: &str) -> (Option<u16>, Option<u16>) {
        let asked = format!("{}{path}", provider.path_prefix);
        let is_page = |page: &String| {
            let bare = page.trim_end_matches('/');
            asked == bare
                || (page.ends_with('/') && is_at_or_below(&asked, if bare.is_empty() { "/" } else { bare }))
        };
        let resembles = |page: &String| {
            let first = page.split('/').find(|segment| !segment.is_empty()).unwrap_or_default();
            asked.to_ascii_lowercase().contains(&first.to_ascii_lowercase())
        };
        let pages = &provider.own_paths;
        (pages.iter().any(is_page).then_some(403), pages.iter().any(resembles).then_some(403))
    }

    /// The route that has this path if case and codes do not matter, and whether it asks for a login.
    pub(crate) fn leniently(
        &self,
        gateway: usize,
        host: &str,
        path: &str,
        method: &str,
    ) -> Option<(PathKey, bool)> {
        let claims = self.claims(gateway, host);
        let plain = |text: &str| decoded(text, |byte| byte.is_ascii()).to_ascii_lowercase();
        let mut keys: Vec<PathKey> = Self::keys(&claims)
            .into_iter()
            .filter(|(exact, value)| {
                let value = plain(value);
                let bare = if value == "/" { "/" } else { value.trim_end_matches('/') };
                // Rule 9 gives a slash to an exact path, and takes none from one that has it.
                if *exact { path == bare && !value.ends_with('/') } else { is_at_or_below(path, bare) }
            })
            .collect();
        keys.sort_by_key(|(exact, value)| (!exact, std::cmp::Reverse(value.len())));
        keys.into_iter().find_map(|key| {
            let taker = self.taker(&claims, &key, method)?;
            Some((key, self.login(&taker) != Login::Open))
        })
    }
}
