//! The Secret with the key from which tokens and markers are derived.

use anyhow::Context as _;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use operator_kit::client::{CALL_TIMEOUT, CallError, bounded};
use ring::rand::{SecureRandom as _, SystemRandom};
use routes::guard::TokenKey;
use tracing::{info, warn};

/// The name of the Secret.
pub(crate) const SECRET: &str = "istio-integrator-guard";
/// The key in it.
const FIELD: &str = "key";
const LENGTH: usize = 32;

/// What there is of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing.
    Nothing,
    /// One that holds a key.
    Key([u8; LENGTH]),
    /// One that holds none.
    NoKey,
}

impl Found {
    fn read(secret: Option<&Secret>) -> Self {
        let Some(secret) = secret else { return Self::Nothing };
        let bytes = secret.data.as_ref().and_then(|data| data.get(FIELD));
        let bytes = bytes.and_then(|bytes| bytes.0.as_slice().try_into().ok());
        bytes.map_or(Self::NoKey, Self::Key)
    }
}

/// What is to be done about the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It holds the key to use.
    Use([u8; LENGTH]),
    /// It is to be created; with the key in use, if there is one: another key would change every protected route.
    Create(Option<[u8; LENGTH]>),
    /// It does not hold the key in use, which stays in use: nothing replaces a key in silence.
    Differs,
    /// It holds no key, and none is in use.
    Unusable,
}

/// Decides, from what there is and the key in use.
fn step(found: Found, known: Option<&[u8; LENGTH]>) -> Step {
    match (found, known) {
        (Found::Nothing, known) => Step::Create(known.copied()),
        (Found::Key(bytes), None) => Step::Use(bytes),
        (Found::Key(bytes), Some(known)) if bytes == *known => Step::Use(bytes),
        (Found::Key(_) | Found::NoKey, Some(_)) => Step::Differs,
        (Found::NoKey, None) => Step::Unusable,
    }
}

/// Reads the key from the Secret, or makes one. `known` is the key in use.
///
/// # Errors
/// The Secret cannot be read or made, or holds something else than a key.
async fn ensure(
    client: &Client,
    namespace: &str,
    known: Option<&[u8; LENGTH]>,
) -> anyhow::Result<[u8; LENGTH]> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    // Twice, since another replica may create it in between.
    for _ in 0..2 {
        let found = bounded(CALL_TIMEOUT, api.get_opt(SECRET)).await;
        let found = found.with_context(|| format!("Secret {namespace}/{SECRET} cannot be read"))?;
        match (step(Found::read(found.as_ref()), known), known) {
            (Step::Use(bytes), _) => return Ok(bytes),
            (Step::Differs, Some(known)) => {
                warn!(
                    secret = SECRET,
                    namespace,
                    "the Secret was changed; the key in use stays in use until the next start, which changes every protected \
                     route. Delete the Secret, and the key in use comes back into it"
                );
                return Ok(*known);
            }
            (Step::Create(bytes), _) => {
                let bytes = bytes.map_or_else(random, Ok)?;
                match create(&api, bytes).await {
                    Ok(()) => {
                        info!(
                            secret = SECRET,
                            again = known.is_some(),
                            "the key of the guard chains was made"
                        );
                        return Ok(bytes);
                    }
                    Err(error) if error.is_conflict() => {}
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("Secret {namespace}/{SECRET} cannot be created"));
                    }
                }
            }
            (Step::Unusable | Step::Differs, _) => anyhow::bail!(
                "Secret {namespace}/{SECRET} does not hold {LENGTH} bytes under {FIELD}: delete it, and it is made anew"
            ),
        }
    }
    anyhow::bail!("Secret {namespace}/{SECRET} comes and goes: see who deletes it")
}

fn random() -> anyhow::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    Ok(bytes)
}

async fn create(api: &Api<Secret>, bytes: [u8; LENGTH]) -> Result<(), CallError> {
    let labels = [(mesh_api::names::MANAGED_BY_LABEL.to_owned(), mesh_api::names::INTEGRATOR.to_owned())];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        data: Some([(FIELD.to_owned(), ByteString(bytes.to_vec()))].into()),
        // Nobody changes it by mistake, so that it can only be deleted, which is put right.
        immutable: Some(true),
        ..Secret::default()
    };
    let params =
        PostParams { field_manager: Some(mesh_api::names::INTEGRATOR.to_owned()), ..PostParams::default() };
    bounded(CALL_TIMEOUT, api.create(&params, &secret)).await.map(|_| ())
}

/// The key in use.
#[derive(Debug, Default)]
pub(super) struct Key {
    bytes: Option<[u8; LENGTH]>,
    token: Option<TokenKey>,
    /// Whether the Secret is known to hold it.
    stored: bool,
}

impl Key {
    /// The key, once it is known.
    pub(super) fn get(&self) -> Option<&TokenKey> {
        self.token.as_ref()
    }

    /// Says that the Secret may have been deleted or changed.
    pub(super) fn doubt(&mut self) {
        self.stored = false;
    }

    /// Makes sure that there is a key, and that the Secret holds it.
    pub(super) async fn ensure(&mut self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        if self.stored {
            return Ok(());
        }
        let bytes = match ensure(client, namespace, self.bytes.as_ref()).await {
            Ok(bytes) => bytes,
            // The key in memory serves until the Secret can be read again.
            Err(error) if self.bytes.is_some() => {
                warn!(error = format!("{error:#}"), "the key of the guard chains cannot be looked at");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.bytes = Some(bytes);
        self.token = Some(TokenKey::new(bytes));
        self.stored = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_use_is_never_replaced() {
        let (one, two) = ([1; LENGTH], [2; LENGTH]);
        for (found, known, expected) in [
            (Found::Nothing, None, Step::Create(None)),
            (Found::Nothing, Some(one), Step::Create(Some(one))),
            (Found::Key(one), None, Step::Use(one)),
            (Found::Key(one), Some(one), Step::Use(one)),
            (Found::Key(two), Some(one), Step::Differs),
            (Found::NoKey, Some(one), Step::Differs),
            (Found::NoKey, None, Step::Unusable),
        ] {
            assert_eq!(step(found, known.as_ref()), expected, "{found:?} {known:?}");
        }
    }

    #[test]
    fn only_a_whole_key_is_one() {
        let secret = |field: &str, length| Secret {
            data: Some([(field.to_owned(), ByteString(vec![7; length]))].into()),
            ..Secret::default()
        };
        assert_eq!(Found::read(Some(&secret(FIELD, LENGTH))), Found::Key([7; LENGTH]));
        assert_eq!(Found::read(None), Found::Nothing);
        for wrong in [secret(FIELD, 31), secret(FIELD, 33), secret("other", LENGTH), Secret::default()] {
            assert_eq!(Found::read(Some(&wrong)), Found::NoKey);
        }
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
