//! The certificates of one cluster: a CA of its own and what it signs, made anew at every start.

use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A CA that writes certificates and keys as PEM files into one directory.
pub(crate) struct Authority<'a> {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    dir: &'a Path,
}

impl<'a> Authority<'a> {
    /// Makes the CA and writes `ca.crt` and `ca.key`.
    pub(crate) fn create(dir: &'a Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "testbed-ca");
        let pem = params.self_signed(&key)?.pem();
        std::fs::write(dir.join("ca.crt"), &pem)?;
        std::fs::write(dir.join("ca.key"), key.serialize_pem())?;
        Ok(Self { issuer: Issuer::new(params, key), pem, dir })
    }

    /// Writes `NAME.crt` and `NAME.key` and returns both; good for a server when it has alternative names, and
    /// always for a client (common name = user, organisation = group).
    pub(crate) fn sign(
        &self,
        name: &str,
        user: &str,
        group: &str,
        names: &[&str],
    ) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !names.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let (cert, key) = (params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem());
        std::fs::write(self.dir.join(format!("{name}.crt")), &cert)?;
        std::fs::write(self.dir.join(format!("{name}.key")), &key)?;
        Ok((cert, key))
    }

    /// Writes `sa.key` and `sa.pub`, with which service account tokens are signed and checked.
    pub(crate) fn service_account_key(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        std::fs::write(self.dir.join("sa.key"), key.serialize_pem())?;
        std::fs::write(self.dir.join("sa.pub"), key.public_key_pem())?;
        Ok(())
    }
}

/// A certificate for these host names that signs itself, and its key, as PEM: for a gateway of a test that trusts it.
pub fn self_signed(names: &[&str]) -> Result<(String, String)> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}
