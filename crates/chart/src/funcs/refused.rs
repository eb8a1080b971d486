//! Functions whose result differs from render to render, or by where Helm runs, and so are refused.

use super::table;
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "ago" (Any) => clock,
    "date" (Str, Any) => clock,
    "date_in_zone" (Str, Any, Str) => clock,
    "dateInZone" (Str, Any, Str) => clock,
    "date_modify" (Str, Host("time.Time")) => clock,
    "dateModify" (Str, Host("time.Time")) => clock,
    "must_date_modify" (Str, Host("time.Time")) => clock,
    "mustDateModify" (Str, Host("time.Time")) => clock,
    "htmlDate" (Any) => clock,
    "htmlDateInZone" (Any, Str) => clock,
    "toDate" (Str, Str) => clock,
    "mustToDate" (Str, Str) => clock,
    "now" () => clock,
    "unixEpoch" (Host("time.Time")) => clock,
    "randAlphaNum" (Int) => random,
    "randAlpha" (Int) => random,
    "randAscii" (Int) => random,
    "randNumeric" (Int) => random,
    "randBytes" (Int) => random,
    "randInt" (Int, Int) => random,
    "shuffle" (Str) => random,
    "uuidv4" () => random,
    "bcrypt" (Str) => random,
    "htpasswd" (Str, Str) => random,
    "genPrivateKey" (Str) => random,
    "buildCustomCert" (Str, Str) => keys,
    "genCA" (Str, Int) => random,
    "genCAWithKey" (Str, Int, Str) => random,
    "genSelfSignedCert" (Str, List, List, Int) => random,
    "genSelfSignedCertWithKey" (Str, List, List, Int, Str) => random,
    "genSignedCert" (Str, List, List, Int, Host("sprig.certificate")) => random,
    "genSignedCertWithKey" (Str, List, List, Int, Host("sprig.certificate"), Str) => random,
    "encryptAES" (Str, Str) => random,
    "decryptAES" (Str, Str) => keys,
    "derivePassword" (Int, Str, Str, Str, Str) => keys,
    "toToml" (Any) => toml,
    "mustToToml" (Any) => toml,
    "fromToml" (Str) => toml,
}

fn clock(_: &mut Ctx, _: &[Value]) -> Result<Value, Failure> {
    Err(Failure::error(
        "this renderer refuses functions of dates: what they give depends on the clock or the time zone, so that each render would differ",
    ))
}

fn random(_: &mut Ctx, _: &[Value]) -> Result<Value, Failure> {
    Err(Failure::error("this renderer refuses functions that draw random numbers: each render would differ"))
}

fn keys(_: &mut Ctx, _: &[Value]) -> Result<Value, Failure> {
    Err(Failure::error("this renderer refuses functions that handle keys and passwords"))
}

fn toml(_: &mut Ctx, _: &[Value]) -> Result<Value, Failure> {
    Err(Failure::error("this renderer does not know TOML"))
}
