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

/// Reads the key from the Secret, or makes one. `known` is the key in use, which comes back into the Secret if that was
/// deleted: another one would change every protected route.
///
/// # Errors
/// The Secret cannot be read or made, or holds something else than a key.
pub(super) async fn ensure(
    client: &Client,
    namespace: &str,
    known: Option<&[u8; LENGTH]>,
) -> anyhow::Result<[u8; LENGTH]> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = bounded(CALL_TIMEOUT, api.get_opt(SECRET)).await;
    let found = found.with_context(|| format!("Secret {namespace}/{SECRET} cannot be read"))?;
    match (found, known) {
        (Some(secret), _) => read(&secret).with_context(|| {
            format!("Secret {namespace}/{SECRET} does not hold {LENGTH} bytes under {FIELD}: delete it, and it is made anew")
        }),
        (None, known) => {
            let bytes = match known {
                Some(bytes) => *bytes,
                None => random()?,
            };
            match create(&api, bytes).await {
                Ok(()) => {
                    info!(secret = SECRET, again = known.is_some(), "the key of the guard chains was made");
                    Ok(bytes)
                }
                // Another replica was faster.
                Err(error) if error.is_conflict() => {
                    let secret = bounded(CALL_TIMEOUT, api.get(SECRET)).await?;
                    read(&secret).context("the Secret made by another replica holds no key")
                }
                Err(error) => {
                    Err(error).with_context(|| format!("Secret {namespace}/{SECRET} cannot be created"))
                }
            }
        }
    }
}

fn read(secret: &Secret) -> Option<[u8; LENGTH]> {
    let bytes = secret.data.as_ref()?.get(FIELD)?;
    bytes.0.as_slice().try_into().ok()
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
    token_key: Option<TokenKey>,
    /// Whether the Secret is known to hold it.
    stored: bool,
}

impl Key {
    /// The key, once it is known.
    pub(super) fn get(&self) -> Option<&TokenKey> {
        self.token_key.as_ref()
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
        self.token_key = Some(TokenKey::new(bytes));
        self.stored = true;
        Ok(())
    }
}
