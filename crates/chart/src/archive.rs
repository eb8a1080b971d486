//! Reading the files of a chart from a `.tgz` or a folder.

use std::io::Read;
use std::path::Path;

use crate::chart::File;
use crate::ignore::Rules;
use crate::Failure;

/// Bytes that the files of a chart may have in all: Helm's own bound for archives and folders.
const MAX_SIZE: u64 = 100 << 20;
/// How many files a chart may have.
const MAX_FILES: usize = 10_000;
const BOM: &[u8] = b"\xef\xbb\xbf";

fn too_large() -> Failure {
    Failure::Limit { what: "decompressed size of the chart", limit: MAX_SIZE }
}

/// The files of a chart archive, without the name of its folder before them.
///
/// # Errors
/// When it is no gzipped tar, when a path leads out of the chart's folder, or when it is too large.
pub(crate) fn unpack(archive: impl Read) -> Result<Vec<File>, Failure> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let io = |error: std::io::Error| Failure::error(format!("the archive cannot be read: {error}"));
    let mut files = Vec::new();
    let mut left = MAX_SIZE;
    for entry in tar.entries().map_err(io)? {
        let mut entry = entry.map_err(io)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if name.ends_with('/') {
            continue;
        }
        let name = relative(&name)?;
        if files.len() == MAX_FILES {
            let limit = u64::try_from(MAX_FILES).unwrap_or(u64::MAX);
            return Err(Failure::Limit { what: "number of files of the chart", limit });
        }
        if entry.size() > left {
            return Err(too_large());
        }
        let mut data = Vec::new();
        let read = (&mut entry).take(left).read_to_end(&mut data).map_err(io)?;
        left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        if left == 0 {
            return Err(too_large());
        }
        files.push(File { name, data: without_bom(data) });
    }
    if files.is_empty() {
        return Err(Failure::error("no files in chart archive"));
    }
    Ok(files)
}

fn without_bom(data: Vec<u8>) -> Vec<u8> {
    data.strip_prefix(BOM).map(<[u8]>::to_vec).unwrap_or(data)
}

/// The path within the chart's folder, with Helm's refusals of paths that lead elsewhere.
fn relative(name: &str) -> Result<String, Failure> {
    let delimiter = if name.contains('\\') { '\\' } else { '/' };
    let (first, rest) = name.split_once(delimiter).unwrap_or((name, ""));
    let rest = rest.replace(delimiter, "/");
    if rest.starts_with('/') {
        return Err(Failure::error("chart illegally contains absolute paths"));
    }
    let clean = clean(&rest);
    if clean == "." {
        return Err(Failure::error(format!(
            "chart illegally contains content outside the base directory: {name:?}"
        )));
    }
    if clean.starts_with("..") {
        return Err(Failure::error("chart illegally references parent directory"));
    }
    let drive = clean.as_bytes();
    if drive.first().is_some_and(u8::is_ascii_alphabetic) && drive.get(1..3) == Some(b":/") {
        return Err(Failure::error("chart contains illegally named files"));
    }
    if first == "Chart.yaml" {
        return Err(Failure::error("chart yaml not in base directory"));
    }
    Ok(clean)
}

/// Go's `path.Clean` for a relative path.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    if parts.is_empty() { ".".into() } else { parts.join("/") }
}

/// The files of a chart in a folder, but for those that its `.helmignore` names.
///
/// # Errors
/// When a file cannot be read, is neither a file nor a folder, or when they are too large in all.
pub(crate) fn walk(folder: &Path) -> Result<Vec<File>, Failure> {
    let rules = match std::fs::read(folder.join(".helmignore")) {
        Ok(text) => Rules::parse(&String::from_utf8_lossy(without_bom(text).as_slice()))?,
        Err(_) => Rules::parse("")?,
    };
    let mut files = Vec::new();
    let mut left = MAX_SIZE;
    into(folder, "", &rules, &mut left, &mut files, 0)?;
    Ok(files)
}

fn into(
    folder: &Path,
    prefix: &str,
    rules: &Rules,
    left: &mut u64,
    files: &mut Vec<File>,
    depth: u32,
) -> Result<(), Failure> {
    // Links may lead in a circle.
    if depth > 64 {
        return Err(Failure::Limit { what: "depth of the chart's folders", limit: 64 });
    }
    let failed = |path: &Path, error: std::io::Error| {
        Failure::error(format!("{} cannot be read: {error}", path.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(|error| failed(folder, error))?.file_name());
    }
    names.sort();
    for name in names {
        let path = folder.join(&name);
        let name = format!("{prefix}{}", name.to_string_lossy());
        let about = std::fs::metadata(&path).map_err(|error| failed(&path, error))?;
        if rules.ignores(&name, about.is_dir()) {
            continue;
        }
        if about.is_dir() {
            into(&path, &format!("{name}/"), rules, left, files, depth.saturating_add(1))?;
            continue;
        }
        if !about.is_file() {
            let message =
                format!("cannot load irregular file {} as it is neither a file nor a folder", path.display());
            return Err(Failure::error(message));
        }
        if files.len() == MAX_FILES {
            let limit = u64::try_from(MAX_FILES).unwrap_or(u64::MAX);
            return Err(Failure::Limit { what: "number of files of the chart", limit });
        }
        let mut data = Vec::new();
        let file = std::fs::File::open(&path).map_err(|error| failed(&path, error))?;
        let read = file.take(*left).read_to_end(&mut data).map_err(|error| failed(&path, error))?;
        *left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        if *left == 0 {
            return Err(too_large());
        }
        files.push(File { name, data: without_bom(data) });
    }
    Ok(())
}
