//! A chart: what its files say, before any values.

use serde::Deserialize;

use crate::Values;

/// A chart and the charts it depends on.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub(crate) metadata: Metadata,
    /// The defaults of `values.yaml`.
    pub(crate) values: Values,
    /// `values.schema.json`.
    pub(crate) schema: Option<Vec<u8>>,
    /// The files under `templates/`, with their path from the chart's folder.
    pub(crate) templates: Vec<File>,
    /// All files but templates, `Chart.yaml`, `values.yaml`, the schema, locks and subcharts.
    pub(crate) files: Vec<File>,
    pub(crate) dependencies: Vec<Chart>,
}

/// A file of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path from the chart's folder, with `/`.
    pub name: String,
    /// What is in it.
    pub data: Vec<u8>,
}

/// `Chart.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The chart's name, or the alias under which its parent has it.
    pub name: String,
    /// A page about the project.
    pub home: String,
    /// Where the sources are.
    pub sources: Vec<String>,
    /// The chart's version, in SemVer 2.
    pub version: String,
    /// One sentence.
    pub description: String,
    /// Words to find it by.
    pub keywords: Vec<String>,
    /// Who keeps it.
    pub maintainers: Vec<Option<Maintainer>>,
    /// A picture's URL.
    pub icon: String,
    /// `v1` or `v2`.
    pub api_version: String,
    /// Unused by Helm, given to templates.
    pub condition: String,
    /// Unused by Helm, given to templates.
    pub tags: String,
    /// The version of what the chart installs.
    pub app_version: String,
    /// Whether it is deprecated.
    pub deprecated: bool,
    /// Anything.
    pub annotations: Option<std::collections::BTreeMap<String, String>>,
    /// A constraint on the version of Kubernetes.
    pub kube_version: String,
    /// The charts it depends on.
    pub dependencies: Option<Vec<Option<Dependency>>>,
    /// `application`, which is the default, or `library`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A maintainer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// A name.
    pub name: String,
    /// An address.
    pub email: String,
    /// A page.
    pub url: String,
}

/// An entry of `dependencies` in `Chart.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Dependency {
    /// The name of the chart.
    pub name: String,
    /// A constraint on its version.
    pub version: String,
    /// Where it comes from; not read here.
    pub repository: String,
    /// Paths into the values, separated by commas: the first that leads to a boolean switches the chart on or off.
    pub condition: String,
    /// Keys of `tags` in the values that switch it on or off.
    pub tags: Vec<String>,
    /// Set while a chart is prepared for a render.
    pub enabled: bool,
    /// What the parent takes over from its values.
    pub import_values: Vec<serde_json::Value>,
    /// The name under which the parent has it.
    pub alias: String,
}

impl Chart {
    /// The chart's name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// What `Chart.yaml` says.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn is_library(&self) -> bool {
        self.metadata.kind.eq_ignore_ascii_case("library")
    }
}
