//! A chart and values in, rendered files out: Helm's engine.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::chart::{Chart, Metadata};
use crate::coalesce::{Nulls, coalesce_values};
use crate::objects::{Capabilities, Files, capabilities};
use crate::plain::{import_map, export_map};
use crate::template::{self, Set};
use crate::value::{Ctx, Element, List, MapRef, MapType, Value};
use crate::{Failure, Limits, Values, dependencies, errors};

/// What a release is, for templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its name.
    pub name: String,
    /// The namespace it goes to.
    pub namespace: String,
    /// How often it was installed or upgraded, from 1.
    pub revision: i64,
    /// Whether this is an installation.
    pub is_install: bool,
    /// Whether this is an upgrade.
    pub is_upgrade: bool,
}

/// How a chart is rendered.
#[derive(Clone, Debug)]
pub struct Options {
    /// The release.
    pub release: Release,
    /// The cluster.
    pub capabilities: Capabilities,
    /// Bounds for a hostile chart.
    pub limits: Limits,
}

/// What came of a render.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Every rendered file, by its path from the chart's name on: those without output and notes of subcharts too.
    pub files: BTreeMap<String, String>,
    /// The chart's `NOTES.txt`.
    pub notes: Option<String>,
    /// What Helm would have warned of while it put values together.
    pub warnings: Vec<String>,
}

/// The stack of the thread that renders. Templates may nest deeply; what is not used of it costs nothing.
const STACK: usize = 256 << 20;

/// Renders a chart.
///
/// # Errors
/// In Helm's words, when a template is malformed or fails; and when a limit is reached.
pub fn render(chart: &Chart, values: &Values, options: &Options) -> Result<Rendered, Failure> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let running = thread
            .spawn_scoped(scope, || here(chart, values, options))
            .map_err(|error| Failure::error(format!("a thread cannot be started: {error}")))?;
        running.join().unwrap_or_else(|_| Err(Failure::error("the render ended unexpectedly")))
    })
}

/// A template with what it is given.
struct Renderable<'c> {
    text: &'c [u8],
    data: MapRef,
    base: String,
}

fn here(chart: &Chart, values: &Values, options: &Options) -> Result<Rendered, Failure> {
    let mut ctx = Ctx::new(options.limits.clone());
    let mut rendered = Rendered::default();
    let mut chart = chart.clone();
    dependencies::process(&mut ctx, &mut chart, values, &mut rendered.warnings)?;
    let given = import_map(&mut ctx, values, MapType::Any, 0)?;
    let values = coalesce_values(&mut ctx, &chart, given, Nulls::Delete, &mut rendered.warnings)?;
    check_schemas(&mut ctx, &chart, values)?;
    ctx.heap.map_mut(values).kind = MapType::Values;

    let release = release(&mut ctx, &options.release)?;
    let shared = (release, capabilities(&options.capabilities));
    let mut templates = BTreeMap::new();
    collect(&mut ctx, &chart, chart.name(), Some(values), &shared, true, &mut templates)?;

    let order = order(&templates);
    let mut set = Set::default();
    for name in &order {
        let Some(template) = templates.get(*name) else { continue };
        let text = std::str::from_utf8(template.text)
            .map_err(|_| Failure::error(format!("{name} is not UTF-8")))?;
        set.parse(name, text).map_err(|failure| errors::of_parse(name, failure))?;
    }
    ctx.set = Rc::new(set);
    for name in &order {
        let last = name.rsplit('/').next().unwrap_or(name);
        let Some(template) = templates.get(*name).filter(|_| !last.starts_with('_')) else { continue };
        let about = BTreeMap::from([
            ("Name".into(), Value::str(name)),
            ("BasePath".into(), Value::str(&template.base)),
        ]);
        let about = ctx.map(MapType::Values, about)?;
        ctx.heap.map_mut(template.data).entries.insert("Template".into(), Value::Map(about));
        let text = template::execute(&mut ctx, name, Value::Map(template.data)).map_err(errors::of_execution)?;
        rendered.files.insert((*name).clone(), text.replace("<no value>", ""));
    }
    rendered.notes = rendered.files.remove(&format!("{}/templates/NOTES.txt", chart.name()));
    Ok(rendered)
}

/// Deeper files first, and within a depth in reverse order: Helm's, which charts rely on for what they change in passing.
fn order<'t>(templates: &'t BTreeMap<String, Renderable<'_>>) -> Vec<&'t String> {
    let mut order: Vec<&String> = templates.keys().collect();
    order.sort_by(|a, b| {
        let depth = |name: &str| name.matches('/').count();
        depth(b).cmp(&depth(a)).then_with(|| b.cmp(a))
    });
    order
}

fn release(ctx: &mut Ctx, release: &Release) -> Result<Value, Failure> {
    ctx.dict(BTreeMap::from([
        ("Name".into(), Value::str(&release.name)),
        ("Namespace".into(), Value::str(&release.namespace)),
        ("IsUpgrade".into(), Value::Bool(release.is_upgrade)),
        ("IsInstall".into(), Value::Bool(release.is_install)),
        ("Revision".into(), Value::Int(release.revision)),
        ("Service".into(), Value::str("Helm")),
    ]))
}

/// Adds the templates of a chart and of its subcharts, and returns what they are given.
fn collect<'c>(
    ctx: &mut Ctx,
    chart: &'c Chart,
    path: &str,
    values: Option<MapRef>,
    shared: &(Value, Value),
    is_root: bool,
    templates: &mut BTreeMap<String, Renderable<'c>>,
) -> Result<MapRef, Failure> {
    let values = match values {
        Some(values) => values,
        None => ctx.map(MapType::Values, BTreeMap::new())?,
    };
    let mut about = metadata(ctx, &chart.metadata)?;
    about.insert("IsRoot".into(), Value::Bool(is_root));
    let about = ctx.dict(about)?;
    let subcharts = ctx.map(MapType::Any, BTreeMap::new())?;
    let data = ctx.map(
        MapType::Any,
        BTreeMap::from([
            ("Chart".into(), about),
            ("Files".into(), Value::Host(Rc::new(Files::new(&chart.files)))),
            ("Release".into(), shared.0.clone()),
            ("Capabilities".into(), shared.1.clone()),
            ("Values".into(), Value::Map(values)),
            ("Subcharts".into(), Value::Map(subcharts)),
        ]),
    )?;
    for sub in &chart.dependencies {
        let own = match ctx.heap.get(values, sub.name()) {
            Some(Value::Map(own)) => Some(*own),
            _ => None,
        };
        let below = format!("{path}/charts/{}", sub.name());
        let given = collect(ctx, sub, &below, own, shared, false, templates)?;
        ctx.heap.map_mut(subcharts).entries.insert(sub.name().into(), Value::Map(given));
    }
    for file in &chart.templates {
        let last = file.name.rsplit('/').next().unwrap_or_default();
        if chart.is_library() && !last.starts_with('_') {
            continue;
        }
        let template = Renderable { text: &file.data, data, base: format!("{path}/templates") };
        templates.insert(format!("{path}/{}", file.name), template);
    }
    Ok(data)
}

/// `.Chart`: the fields of `Chart.yaml` under the names that they have in Helm's source.
fn metadata(ctx: &mut Ctx, from: &Metadata) -> Result<BTreeMap<Rc<str>, Value>, Failure> {
    let strings = |items: &[String]| Value::list(items.iter().map(Value::str).collect());
    let mut maintainers = Vec::new();
    for maintainer in from.maintainers.iter().flatten() {
        maintainers.push(ctx.dict(BTreeMap::from([
            ("Name".into(), Value::str(&maintainer.name)),
            ("Email".into(), Value::str(&maintainer.email)),
            ("URL".into(), Value::str(&maintainer.url)),
        ]))?);
    }
    let mut wanted = Vec::new();
    for dependency in from.dependencies.iter().flatten().flatten() {
        let mut imports = Vec::new();
        for entry in &dependency.import_values {
            let object = entry.as_object().cloned().unwrap_or_default();
            imports.push(Value::Map(import_map(ctx, &object, MapType::Strings, 0)?));
        }
        wanted.push(ctx.dict(BTreeMap::from([
            ("Name".into(), Value::str(&dependency.name)),
            ("Version".into(), Value::str(&dependency.version)),
            ("Repository".into(), Value::str(&dependency.repository)),
            ("Condition".into(), Value::str(&dependency.condition)),
            ("Tags".into(), strings(&dependency.tags)),
            ("Enabled".into(), Value::Bool(dependency.enabled)),
            ("ImportValues".into(), Value::list(imports)),
            ("Alias".into(), Value::str(&dependency.alias)),
        ]))?);
    }
    let notes = from.annotations.iter().flatten();
    let annotations = notes.map(|(key, value)| (key.as_str().into(), Value::str(value))).collect();
    let annotations = ctx.map(MapType::Strings, annotations)?;
    Ok(BTreeMap::from([
        ("Name".into(), Value::str(&from.name)),
        ("Home".into(), Value::str(&from.home)),
        ("Sources".into(), strings(&from.sources)),
        ("Version".into(), Value::str(&from.version)),
        ("Description".into(), Value::str(&from.description)),
        ("Keywords".into(), strings(&from.keywords)),
        ("Maintainers".into(), Value::List(List { items: maintainers.into(), element: Element::Any })),
        ("Icon".into(), Value::str(&from.icon)),
        ("APIVersion".into(), Value::str(&from.api_version)),
        ("Condition".into(), Value::str(&from.condition)),
        ("Tags".into(), Value::str(&from.tags)),
        ("AppVersion".into(), Value::str(&from.app_version)),
        ("Deprecated".into(), Value::Bool(from.deprecated)),
        ("Annotations".into(), Value::Map(annotations)),
        ("KubeVersion".into(), Value::str(&from.kube_version)),
        ("Dependencies".into(), Value::list(wanted)),
        ("Type".into(), Value::str(&from.kind)),
    ]))
}

/// Checks the values of a chart and of its subcharts by their schemas. To be written: the crate `jsonschema`.
fn check_schemas(ctx: &mut Ctx, chart: &Chart, values: MapRef) -> Result<(), Failure> {
    if chart.schema.is_some() {
        let _plain = export_map(ctx, values, 0)?;
    }
    Ok(())
}
