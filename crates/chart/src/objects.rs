//! `.Files` and `.Capabilities`.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::chart::File;
use crate::value::{Ctx, Host, Signature, Type, Value};
use crate::{Failure, glob, yaml};

const OF_NAME: Signature = Signature { params: &[Type::Str], variadic: None };
const OF_NOTHING: Signature = Signature { params: &[], variadic: None };

/// `.Files`: the files of a chart, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(BTreeMap<Rc<str>, Rc<[u8]>>);

impl Files {
    pub(crate) fn new(files: &[File]) -> Self {
        Self(files.iter().map(|file| (file.name.as_str().into(), file.data.as_slice().into())).collect())
    }

    fn get(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], |data| data)
    }

    /// A map from the last names of the files, for `AsConfig` and `AsSecrets`.
    fn by_name(&self, ctx: &mut Ctx, form: fn(&[u8]) -> Value) -> Result<Value, Failure> {
        let mut entries = BTreeMap::new();
        for (name, data) in &self.0 {
            ctx.room(data.len().saturating_mul(2))?;
            entries.insert(name.rsplit('/').next().unwrap_or(name).into(), form(data));
        }
        let map = ctx.dict(entries)?;
        let text = yaml::write(ctx, &map)?;
        // Helm's toYAML, through which these go, drops the newline at the end.
        ctx.text(text.strip_suffix('\n').unwrap_or(&text))
    }
}

/// A Go string of these bytes.
fn string(data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) => Value::str(text),
        Err(_) => Value::Raw(data.into()),
    }
}

fn first(args: &[Value]) -> &str {
    match args.first() {
        Some(Value::Str(text)) => text,
        _ => "",
    }
}

impl Host for Files {
    fn type_name(&self) -> &'static str {
        "engine.files"
    }

    fn kind(&self) -> &'static str {
        "map"
    }

    fn method(&self, name: &str) -> Option<&'static Signature> {
        match name {
            "Get" | "GetBytes" | "Glob" | "Lines" => Some(&OF_NAME),
            "AsConfig" | "AsSecrets" => Some(&OF_NOTHING),
            _ => None,
        }
    }

    fn call(&self, ctx: &mut Ctx, name: &str, args: &[Value]) -> Result<Value, Failure> {
        let path = first(args);
        match name {
            "Get" => {
                let data = self.get(path);
                ctx.room(data.len())?;
                Ok(string(data))
            }
            "GetBytes" => Ok(Value::Bytes(self.get(path).into())),
            "Glob" => {
                let pattern = glob::Glob::new(path);
                ctx.step(self.0.len().saturating_mul(path.len().saturating_add(1)))?;
                let files = self.0.iter().filter(|(name, _)| pattern.matches(name));
                let files = files.map(|(name, data)| (Rc::clone(name), Rc::clone(data))).collect();
                Ok(Value::Host(Rc::new(Self(files))))
            }
            "Lines" => {
                let data = self.get(path);
                ctx.room(data.len().saturating_mul(2))?;
                let data = data.strip_suffix(b"\n").unwrap_or(data);
                if self.get(path).is_empty() {
                    return Ok(Value::strings([""; 0]));
                }
                let items = data.split(|byte| *byte == b'\n').map(string).collect();
                Ok(Value::List(crate::value::List { items, element: crate::value::Element::Str }))
            }
            "AsConfig" => self.by_name(ctx, string),
            "AsSecrets" => self.by_name(ctx, |data| Value::str(STANDARD.encode(data))),
            _ => Err(Failure::error(format!("{} has no method {name}", self.type_name()))),
        }
    }

    fn field(&self, _ctx: &mut Ctx, name: &str) -> Option<Value> {
        // A miss gives the zero value of the map's elements.
        Some(Value::Bytes(self.get(name).into()))
    }

    fn entries(&self) -> Option<Vec<(Value, Value)>> {
        let entries = self.0.iter();
        Some(entries.map(|(name, data)| (Value::Str(Rc::clone(name)), Value::Bytes(Rc::clone(data)))).collect())
    }

    fn display(&self) -> String {
        let bytes = |data: &[u8]| data.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
        let entries = self.0.iter().map(|(name, data)| format!("{name}:[{}]", bytes(data)));
        format!("map[{}]", entries.collect::<Vec<_>>().join(" "))
    }

    fn plain(&self, ctx: &mut Ctx) -> Result<Value, Failure> {
        let entries = self.0.iter();
        let entries = entries.map(|(name, data)| (Rc::clone(name), Value::Bytes(Rc::clone(data)))).collect();
        ctx.dict(entries)
    }
}

/// `.Capabilities`: what the cluster can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The cluster's version, with `v`, such as `v1.33.4-gke.1245000`.
    pub kube_version: String,
    /// The API versions it serves, such as `apps/v1`, and `apps/v1/Deployment` where a chart asks for kinds.
    pub api_versions: Vec<String>,
    /// What templates see as Helm's own version, with `v`.
    pub helm_version: String,
}

impl Default for Capabilities {
    /// Kubernetes 1.36, whose client library Helm 4.3.1 has, without any API but the core one.
    fn default() -> Self {
        Self {
            kube_version: "v1.36.0".into(),
            api_versions: vec!["v1".into()],
            helm_version: "v4.3.1".into(),
        }
    }
}

impl Capabilities {
    /// The version's numbers: major and minor.
    fn numbers(&self) -> (&str, &str) {
        let mut parts = self.kube_version.trim_start_matches('v').split(['.', '-', '+']);
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// `v1.33.4` of `v1.33.4-gke.1245000`, which constraints are compared with.
    pub(crate) fn normalized(&self) -> String {
        let version = self.kube_version.trim_start_matches('v');
        let end = version.find(|character: char| !character.is_ascii_digit() && character != '.');
        let mut parts: Vec<&str> = version.get(..end.unwrap_or(version.len())).unwrap_or_default().split('.').collect();
        parts.resize(3, "0");
        format!("v{}", parts.join("."))
    }
}

/// A struct, by its fields, sorted as declared.
#[derive(Clone, Debug)]
struct Struct {
    type_name: &'static str,
    kind: &'static str,
    fields: Vec<(&'static str, Value)>,
    /// Methods without parameters, and what they return.
    methods: Vec<(&'static str, Value)>,
}

impl Host for Struct {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn method(&self, name: &str) -> Option<&'static Signature> {
        self.methods.iter().any(|(method, _)| *method == name).then_some(&OF_NOTHING)
    }

    fn call(&self, _ctx: &mut Ctx, name: &str, _args: &[Value]) -> Result<Value, Failure> {
        let found = self.methods.iter().find(|(method, _)| *method == name);
        found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| Failure::error(format!("{} has no method {name}", self.type_name)))
    }

    fn field(&self, _ctx: &mut Ctx, name: &str) -> Option<Value> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    }

    fn display(&self) -> String {
        if let Some((_, Value::Str(text))) = self.methods.iter().find(|(method, _)| *method == "String") {
            return text.as_ref().to_owned();
        }
        let shown = |value: &Value| match value {
            Value::Str(text) => text.as_ref().to_owned(),
            Value::Host(host) => host.display(),
            _ => String::new(),
        };
        let fields: Vec<String> = self.fields.iter().map(|(_, value)| shown(value)).collect();
        format!("{{{}}}", fields.join(" "))
    }

    fn plain(&self, ctx: &mut Ctx) -> Result<Value, Failure> {
        ctx.dict(self.fields.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
    }
}

/// `.Capabilities.APIVersions`.
#[derive(Clone, Debug)]
struct Versions(Rc<[Value]>);

impl Host for Versions {
    fn type_name(&self) -> &'static str {
        "common.VersionSet"
    }

    fn kind(&self) -> &'static str {
        "slice"
    }

    fn method(&self, name: &str) -> Option<&'static Signature> {
        (name == "Has").then_some(&OF_NAME)
    }

    fn call(&self, ctx: &mut Ctx, _name: &str, args: &[Value]) -> Result<Value, Failure> {
        ctx.step(self.0.len())?;
        let wanted = first(args);
        Ok(Value::Bool(self.0.iter().any(|version| matches!(version, Value::Str(text) if text.as_ref() == wanted))))
    }

    fn entries(&self) -> Option<Vec<(Value, Value)>> {
        let numbered = (0_i64..).zip(self.0.iter());
        Some(numbered.map(|(position, version)| (Value::Int(position), version.clone())).collect())
    }

    fn display(&self) -> String {
        let shown: Vec<&str> =
            self.0.iter().map(|version| if let Value::Str(text) = version { text } else { "" }).collect();
        format!("[{}]", shown.join(" "))
    }

    fn plain(&self, _ctx: &mut Ctx) -> Result<Value, Failure> {
        Ok(Value::list(self.0.to_vec()))
    }
}

/// `.Capabilities` as templates see it.
pub(crate) fn capabilities(from: &Capabilities) -> Value {
    let (major, minor) = from.numbers();
    let text = |text: &str| Value::str(text);
    let host = |value: Struct| Value::Host(Rc::new(value));
    let kube = host(Struct {
        type_name: "common.KubeVersion",
        kind: "struct",
        fields: vec![("Version", text(&from.kube_version)), ("Major", text(major)), ("Minor", text(minor))],
        methods: vec![("String", text(&from.normalized())), ("GitVersion", text(&from.kube_version))],
    });
    let versions = from.api_versions.iter().map(|version| text(version)).collect();
    let helm = host(Struct {
        type_name: "version.BuildInfo",
        kind: "struct",
        fields: vec![
            ("Version", text(&from.helm_version)),
            ("GitCommit", text("")),
            ("GitTreeState", text("")),
            ("GoVersion", text("")),
        ],
        methods: Vec::new(),
    });
    host(Struct {
        type_name: "*common.Capabilities",
        kind: "ptr",
        fields: vec![
            ("KubeVersion", kube),
            ("APIVersions", Value::Host(Rc::new(Versions(versions)))),
            ("HelmVersion", helm),
        ],
        methods: Vec::new(),
    })
}
