//! The integrator's own key, and what is derived from it.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::ProviderId;
use crate::emit::hexadecimal;
use crate::input::ObjectKey;

/// The hexadecimal digits of a token and of a marker's path: 128 bits.
const DIGITS: usize = 32;

/// A key of the integrator's own, from which tokens and the paths of markers are derived.
///
/// That a client cannot pass a protected route does not rest on it: a token begins with a byte that Envoy takes from
/// nobody. It keeps tokens and markers from being guessed all the same.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey([u8; 32]);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl TokenKey {
    /// The key of these bytes, which are to be random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The token of a provider: the byte 0x01, which Envoy takes from no client and sends to no backend, and 32
    /// hexadecimal digits.
    pub fn token(&self, id: &ProviderId) -> String {
        format!("\u{1}{}", self.derive(&["token", id.as_str()]))
    }

    /// The path by which a pod of this gateway is asked which routes of this host it holds.
    pub fn marker_path(&self, gateway: &ObjectKey, host: &str) -> String {
        let digits = self.derive(&["marker", &gateway.namespace, &gateway.name, host]);
        format!("/.well-known/istio-integrator/{digits}")
    }

    /// The parts are unmistakable wherever one ends and the next begins: none of them can hold a NUL.
    fn derive(&self, parts: &[&str]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            // HMAC takes keys of every length.
            return "0".repeat(DIGITS);
        };
        for part in parts {
            mac.update(part.as_bytes());
            mac.update(&[0]);
        }
        let mut digits = hexadecimal(&mac.finalize().into_bytes());
        digits.truncate(DIGITS);
        digits
    }
}
