//! What files a `configMap`, `secret`, `downwardAPI` or `projected` volume holds. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Secret};

use super::atomic::{File, Files};
use crate::pod::fields::Fields;

/// Kubernetes' default for `defaultMode`.
const DEFAULT_MODE: i32 = 0o644;

/// Data of a `ConfigMap` or Secret.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// A `ConfigMap`'s data and binary data.
pub(super) fn config_map_data(map: &ConfigMap) -> Data {
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
    text.chain(binary).collect()
}

/// A Secret's data.
pub(super) fn secret_data(secret: &Secret) -> Data {
    secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

/// Permission bits as the API gives them.
pub(super) fn mode(own: Option<i32>, default: Option<i32>) -> u32 {
    u32::try_from(own.or(default).unwrap_or(DEFAULT_MODE)).unwrap_or(0o644) & 0o777
}

/// A reference to a `ConfigMap` or Secret in a volume.
pub(super) struct Reference<'a> {
    /// `configmap` or `secret`, for messages.
    pub(super) kind: &'a str,
    /// Its name.
    pub(super) name: &'a str,
    /// Whether it, and each of its keys, may be missing.
    pub(super) optional: bool,
    /// Keys to show, none for all.
    pub(super) items: Option<&'a [KeyToPath]>,
    /// `defaultMode`.
    pub(super) default_mode: Option<i32>,
}

impl Reference<'_> {
    /// The files it makes of `data`. The error is for an Event.
    pub(super) fn files(&self, data: Option<&Data>) -> Result<Files, String> {
        let Some(data) = data else {
            return if self.optional {
                Ok(Files::new())
            } else {
                Err(format!("{} {:?} not found", self.kind, self.name))
            };
        };
        let Some(items) = self.items.filter(|items| !items.is_empty()) else {
            let mode = mode(None, self.default_mode);
            return Ok(data
                .iter()
                .map(|(key, bytes)| (PathBuf::from(key), File { bytes: bytes.clone(), mode }))
                .collect());
        };
        let mut files = Files::new();
        for item in items {
            match data.get(&item.key) {
                Some(bytes) => {
                    let file = File { bytes: bytes.clone(), mode: mode(item.mode, self.default_mode) };
                    files.insert(PathBuf::from(&item.path), file);
                }
                None if self.optional => {}
                None => return Err(format!("{} {:?} has no key {:?}", self.kind, self.name, item.key)),
            }
        }
        Ok(files)
    }
}

/// The files of a downward API source.
pub(super) fn downward(
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
    fields: Fields<'_>,
) -> Result<Files, String> {
    let file = |item: &DownwardAPIVolumeFile| {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => fields.field(field)?,
            (None, Some(resource)) => fields.resource(resource, None)?,
            (None, None) => return Err(format!("downward API file {:?} names no field", item.path)),
        };
        let file = File { bytes: text.into_bytes(), mode: mode(item.mode, default_mode) };
        Ok((PathBuf::from(&item.path), file))
    };
    items.iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Data {
        [("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())].into()
    }

    fn reference(items: Option<&[KeyToPath]>, optional: bool) -> Reference<'_> {
        Reference { kind: "configmap", name: "cm", optional, items, default_mode: Some(0o400) }
    }

    fn item(key: &str, path: &str, mode: Option<i32>) -> KeyToPath {
        KeyToPath { key: key.to_owned(), path: path.to_owned(), mode }
    }

    fn listing(files: &Files) -> Vec<String> {
        let line = |(path, file): (&PathBuf, &File)| {
            format!("{} {:o} {}", path.display(), file.mode, String::from_utf8_lossy(&file.bytes))
        };
        files.iter().map(line).collect()
    }

    #[test]
    fn all_keys_or_chosen_ones_become_files() {
        assert_eq!(listing(&reference(None, false).files(Some(&data())).unwrap()), ["a 400 1", "b 400 2"]);
        let items = [item("a", "deep/x", Some(0o755)), item("b", "y", None)];
        let chosen = reference(Some(&items), false).files(Some(&data())).unwrap();
        assert_eq!(listing(&chosen), ["deep/x 755 1", "y 400 2"]);
    }

    #[test]
    fn missing_objects_and_keys_are_errors_unless_optional() {
        let items = [item("a", "a", None), item("z", "z", None)];
        let error = reference(Some(&items), false).files(Some(&data())).unwrap_err();
        assert_eq!(error, "configmap \"cm\" has no key \"z\"");
        assert_eq!(listing(&reference(Some(&items), true).files(Some(&data())).unwrap()), ["a 400 1"]);
        assert_eq!(reference(None, false).files(None).unwrap_err(), "configmap \"cm\" not found");
        assert!(reference(None, true).files(None).unwrap().is_empty());
    }
}
