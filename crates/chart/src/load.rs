//! From the files of a chart to a [`Chart`].

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use crate::chart::{Chart, Dependency, File, Maintainer, Metadata};
use crate::funcs::semver;
use crate::plain::{export, export_map};
use crate::value::{Ctx, MapRef, MapType, Value};
use crate::{Failure, Limits, Values, archive, yaml};

/// How deep charts may hold charts.
const MAX_NESTING: u32 = 16;

impl Chart {
    /// Loads a chart from its folder or its `.tgz` archive.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 100 MiB, holds paths that lead out of it, or is no chart.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Self::from_files(archive::walk(path)?);
        }
        let file = std::fs::File::open(path)
            .map_err(|error| Failure::error(format!("{} cannot be read: {error}", path.display())))?;
        Self::from_archive(file)
    }

    /// Loads a chart from a `.tgz` archive.
    ///
    /// # Errors
    /// As [`Chart::load`].
    pub fn from_archive(archive: impl Read) -> Result<Self, Failure> {
        load(archive::unpack(archive)?, 0)
    }

    /// Makes a chart of files, whose names are paths from the chart's folder.
    ///
    /// # Errors
    /// When they are no chart.
    pub fn from_files(files: Vec<File>) -> Result<Self, Failure> {
        load(files, 0)
    }
}

fn load(files: Vec<File>, depth: u32) -> Result<Chart, Failure> {
    if depth > MAX_NESTING {
        return Err(Failure::Limit { what: "nesting of charts", limit: MAX_NESTING.into() });
    }
    let mut chart = Chart::default();
    let mut metadata = None;
    for file in files.iter().filter(|file| file.name == "Chart.yaml") {
        metadata = Some(read_metadata(file)?);
    }
    let mut subcharts: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for file in files {
        match file.name.as_str() {
            "Chart.yaml" | "Chart.lock" => {}
            "values.yaml" => {
                chart.values = read_values(&text(&file)?)
                    .map_err(|failure| within("cannot load values.yaml", failure))?;
            }
            "values.schema.json" => chart.schema = Some(file.data),
            // Charts of apiVersion v1 have their dependencies here, and the file stays one that templates can read.
            "requirements.yaml" | "requirements.lock" => {
                let metadata = metadata.get_or_insert_with(Metadata::default);
                if file.name == "requirements.yaml" {
                    let more = read_metadata(&file)?;
                    if more.dependencies.is_some() {
                        metadata.dependencies = more.dependencies;
                    }
                }
                if metadata.api_version == "v1" {
                    chart.files.push(file);
                }
            }
            name if name.starts_with("templates/") => chart.templates.push(file),
            name if name.starts_with("charts/") && !has_extension(name, "prov") => {
                let rest = name.trim_start_matches("charts/").to_owned();
                let folder = rest.split('/').next().unwrap_or_default().to_owned();
                subcharts.entry(folder).or_default().push(File { name: rest, data: file.data });
            }
            _ => chart.files.push(file),
        }
    }
    let Some(mut metadata) = metadata else { return Err(Failure::error("Chart.yaml file is missing")) };
    validate(&mut metadata)?;
    chart.metadata = metadata;
    for (name, files) in subcharts {
        if name.starts_with(['_', '.']) {
            continue;
        }
        let failed = |failure| {
            within(&format!("error unpacking subchart {name} in {}", chart.metadata.name), failure)
        };
        let sub = if has_extension(&name, "tgz") {
            let [file] = files.as_slice() else {
                let message =
                    format!("error unpacking subchart tar in {}: {name} is a folder", chart.metadata.name);
                return Err(Failure::error(message));
            };
            archive::unpack(file.data.as_slice()).and_then(|files| load(files, depth.saturating_add(1)))
        } else {
            let within_folder = files.into_iter().filter_map(|file| {
                let (_, rest) = file.name.split_once('/')?;
                Some(File { name: rest.to_owned(), data: file.data })
            });
            load(within_folder.collect(), depth.saturating_add(1))
        };
        chart.dependencies.push(sub.map_err(failed)?);
    }
    Ok(chart)
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit('/').next().unwrap_or(name).rsplit_once('.').is_some_and(|(_, found)| found == extension)
}

/// Puts words before an error, and leaves a limit as it is.
pub(crate) fn within(words: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Error(message) => Failure::error(format!("{words}: {message}")),
        limit @ Failure::Limit { .. } => limit,
    }
}

fn text(file: &File) -> Result<String, Failure> {
    String::from_utf8(file.data.clone())
        .map_err(|_| Failure::error(format!("{} is not UTF-8", file.name)))
}

fn read_metadata(file: &File) -> Result<Metadata, Failure> {
    let name = &file.name;
    let mut ctx = Ctx::new(Limits::default());
    let words = format!("cannot load {name}");
    let value = yaml::read(&mut ctx, &text(file)?).map_err(|failure| within(&words, failure))?;
    let mut plain = export(&mut ctx, &value, 0)?;
    drop_nulls(&mut plain);
    if plain.is_null() {
        return Ok(Metadata { api_version: "v1".into(), ..Metadata::default() });
    }
    let mut metadata: Metadata =
        serde_json::from_value(plain).map_err(|error| Failure::error(format!("{words}: {error}")))?;
    if metadata.api_version.is_empty() {
        metadata.api_version = "v1".into();
    }
    Ok(metadata)
}

/// Go leaves a field as it is where JSON has null for it; elements of lists stay null.
fn drop_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(entries) => {
            entries.retain(|_, value| !value.is_null());
            entries.values_mut().for_each(drop_nulls);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Reads a values file: of several documents, later ones win, and maps are merged.
///
/// # Errors
/// When it is not YAML, or a document is no map.
pub fn read_values(text: &str) -> Result<Values, Failure> {
    let mut ctx = Ctx::new(Limits::default());
    let merged = ctx.map(MapType::Any, BTreeMap::new())?;
    for document in documents(text) {
        let words = "cannot unmarshal yaml document";
        match yaml::read(&mut ctx, &document).map_err(|failure| within(words, failure))? {
            Value::Nil => {}
            Value::Map(map) => merge(&mut ctx, merged, map, 0)?,
            other => {
                let kind = match other {
                    Value::Bool(_) => "bool",
                    Value::Str(_) => "string",
                    Value::List(_) => "array",
                    _ => "number",
                };
                let message = format!(
                    "{words}: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of \
                     type map[string]interface {{}}"
                );
                return Err(Failure::error(message));
            }
        }
    }
    export_map(&mut ctx, merged, 0)
}

/// Kubernetes' `YAMLReader`: documents end at lines that begin with `---` and hold nothing else but blanks.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let separates = line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty());
        match documents.last_mut() {
            Some(last) if separates && !last.is_empty() => documents.push(String::new()),
            Some(_) if separates => {}
            Some(last) => last.push_str(line),
            None => {}
        }
    }
    documents.retain(|document| !document.is_empty());
    documents
}

fn merge(ctx: &mut Ctx, into: MapRef, from: MapRef, depth: u32) -> Result<(), Failure> {
    ctx.depth(depth)?;
    let entries: Vec<_> =
        ctx.heap.map(from).entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    ctx.step(entries.len())?;
    for (key, value) in entries {
        match (ctx.heap.get(into, &key), value) {
            (Some(Value::Map(there)), Value::Map(more)) => {
                let there = *there;
                merge(ctx, there, more, depth.saturating_add(1))?;
            }
            (_, value) => {
                ctx.heap.map_mut(into).entries.insert(key, value);
            }
        }
    }
    Ok(())
}

fn invalid(message: &str) -> Failure {
    Failure::error(format!("validation: {message}"))
}

fn validate(metadata: &mut Metadata) -> Result<(), Failure> {
    for field in [
        &mut metadata.name,
        &mut metadata.description,
        &mut metadata.home,
        &mut metadata.icon,
        &mut metadata.condition,
        &mut metadata.tags,
        &mut metadata.app_version,
        &mut metadata.kube_version,
    ] {
        sanitize(field);
    }
    metadata.sources.iter_mut().chain(&mut metadata.keywords).for_each(sanitize);
    let name = &metadata.name;
    if name.is_empty() {
        return Err(invalid("chart.metadata.name is required"));
    }
    if name == "." || name == ".." {
        return Err(invalid(&format!("chart.metadata.name {name:?} is not allowed")));
    }
    if name.contains('/') {
        return Err(invalid(&format!("chart.metadata.name {name:?} is invalid")));
    }
    if metadata.version.is_empty() {
        return Err(invalid("chart.metadata.version is required"));
    }
    if !semver::is_version(&metadata.version) {
        return Err(invalid(&format!("chart.metadata.version {:?} is invalid", metadata.version)));
    }
    if !matches!(metadata.kind.as_str(), "" | "application" | "library") {
        return Err(invalid("chart.metadata.type must be application or library"));
    }
    for maintainer in &mut metadata.maintainers {
        let Some(Maintainer { name, email, url }) = maintainer else {
            return Err(invalid("maintainers must not contain empty or null nodes"));
        };
        [name, email, url].into_iter().for_each(sanitize);
    }
    let mut names = std::collections::BTreeSet::new();
    for dependency in metadata.dependencies.iter_mut().flatten() {
        let Some(dependency) = dependency else {
            return Err(invalid("dependencies must not contain empty or null nodes"));
        };
        validate_dependency(dependency)?;
        let key = if dependency.alias.is_empty() { &dependency.name } else { &dependency.alias };
        if !names.insert(key.clone()) {
            return Err(invalid(&format!("more than one dependency with name or alias {key:?}")));
        }
    }
    Ok(())
}

fn validate_dependency(dependency: &mut Dependency) -> Result<(), Failure> {
    for field in [
        &mut dependency.name,
        &mut dependency.version,
        &mut dependency.repository,
        &mut dependency.condition,
    ] {
        sanitize(field);
    }
    dependency.tags.iter_mut().for_each(sanitize);
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if !dependency.alias.chars().all(allowed) {
        let name = &dependency.name;
        return Err(invalid(&format!("dependency {name:?} has disallowed characters in the alias")));
    }
    Ok(())
}

/// Makes every kind of space a blank and drops what cannot be printed.
fn sanitize(text: &mut String) {
    let printable = |character: char| {
        if character.is_whitespace() {
            Some(' ')
        } else {
            (!character.is_control() && !('\u{200b}'..='\u{200f}').contains(&character)).then_some(character)
        }
    };
    *text = text.chars().filter_map(printable).collect();
}
