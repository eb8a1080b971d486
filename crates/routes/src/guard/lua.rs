//! The two Lua filters of a chain.
//!
//! They use what Envoy 1.32 has, the oldest one that is supported: an unknown call would throw, and Envoy would go on with
//! the request as it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Provider, ProviderId, TokenKey};

/// Takes from the client's request what only the chain may set, and marks it for *leave*.
///
/// It ends at once for a route that asks for no login. The check's place for its proof is emptied, so that only a check that
/// runs after this can fill it.
const ENTER: &str = "\
function envoy_on_request(h)
  local i = h:streamInfo():dynamicMetadata()
  local m = i:get('envoy.filters.http.rbac')
  local p = m and m['ii_shadow_effective_policy_id']
  if not p or p == '!' then return end
  i:set('envoy.filters.http.ext_authz', ':status', '')
  local s = S[p] or A
  local H, d = h:headers(), {}
  for k in pairs(H) do
    local c = string.gsub(k, '_', '-')
    if c == 'x-ii-guard' or s[c] then d[#d + 1] = k end
  end
  for _, k in ipairs(d) do H:remove(k) end
  if p == '#' then H:add('x-ii-guard', '\\1#' .. D) else H:add('x-ii-guard', '\\1?' .. p) end
end
";

/// Turns the mark into the provider's token if its check left proof that it was passed, and answers probes.
const LEAVE: &str = "\
function envoy_on_request(h)
  local H = h:headers()
  local g = H:get('x-ii-guard')
  if not g or string.byte(g) ~= 1 then return end
  local i = h:streamInfo():dynamicMetadata()
  local m = i:get('envoy.filters.http.rbac')
  local p = m and m['ii_shadow_effective_policy_id']
  if p == '#' and string.sub(g, 1, 2) == '\\1#' then
    h:respond({[':status'] = '200', ['x-ii-chain'] = string.sub(g, 3) .. '.' .. D}, '')
    return
  end
  local a = i:get('envoy.filters.http.ext_authz')
  local t = p and T[p]
  if t and g == '\\1?' .. p and a and a[':status'] == '200' then
    H:replace('x-ii-guard', t)
  else
    H:remove('x-ii-guard')
  end
end
";

/// *enter*: `S` are the identity headers of each provider, `A` those of all.
pub(super) fn enter(providers: &BTreeMap<ProviderId, Provider>, digest: &str) -> String {
    let mut text = format!("local D = '{digest}'\nlocal S = {{\n");
    let mut all: Vec<&String> = Vec::new();
    for (id, provider) in providers {
        all.extend(&provider.identity_headers);
        // Writing to a String cannot fail. An id is hexadecimal, and headers are lower-case letters, digits and dashes.
        let _ = writeln!(text, "  ['{id}'] = {{{}}},", set(provider.identity_headers.iter()));
    }
    all.sort();
    all.dedup();
    let _ = writeln!(text, "}}\nlocal A = {{{}}}", set(all.into_iter()));
    text + ENTER
}

/// *leave*: `T` are the tokens.
pub(super) fn leave(providers: &BTreeMap<ProviderId, Provider>, digest: &str, key: &TokenKey) -> String {
    let mut text = format!("local D = '{digest}'\nlocal T = {{\n");
    for id in providers.keys() {
        // The byte 0x01 as Lua writes it, since a control character has no place in a text of YAML: with three digits, or the
        // digits of the token would be taken for more of them.
        let token = key.token(id);
        let _ = writeln!(text, "  ['{id}'] = '\\001{}',", token.trim_start_matches('\u{1}'));
    }
    text + "}\n" + LEAVE
}

fn set<'h>(headers: impl Iterator<Item = &'h String>) -> String {
    headers.map(|header| format!("['{header}'] = true")).collect::<Vec<_>>().join(", ")
}

/// Whether this is *enter* or *leave*, with nothing but tables of plain words before it.
pub(super) fn is_known(text: &str) -> bool {
    let tables = text.strip_suffix(ENTER).or_else(|| text.strip_suffix(LEAVE));
    tables.is_some_and(|tables| {
        tables.bytes().all(|b| b.is_ascii_alphanumeric() || b" \n'=[]{},-\\".contains(&b))
            && tables.split('\'').skip(1).step_by(2).all(|word| {
                let word = word.strip_prefix("\\001").unwrap_or(word);
                word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    })
}
