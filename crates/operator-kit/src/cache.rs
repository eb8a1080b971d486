//! What is in the cluster, as last heard, with our own writes put in at once.
//!
//! kube's reflector store knows only what its watch delivered, so a pass that starts between a write and its watch
//! event would write again. Here the answer to a write goes into the cache, and a watch event that is older than
//! what is held is ignored. Resource versions of one kind are numbers that grow
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>); where one is not a number, the
//! watch is believed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use tokio::sync::Notify;

/// Wakes the loop that makes passes. Wakes while it is busy are kept, as one.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Asks for a pass.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits until somebody asks.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}

/// Namespace and name; the namespace is empty for a cluster-scoped object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace, or nothing.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// The key of an object with this metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One cached object.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// What is kept of it.
    pub value: Arc<T>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Self { uid: self.uid.clone(), version: self.version.clone(), value: Arc::clone(&self.value) }
    }
}

impl<T> Entry<T> {
    /// An entry for an object with this metadata.
    pub fn new(meta: &ObjectMeta, value: T) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            value: Arc::new(value),
        }
    }

    fn is_newer_than(&self, version: &str) -> bool {
        match (self.version.parse::<u128>(), version.parse::<u128>()) {
            (Ok(held), Ok(other)) => held > other,
            _ => false,
        }
    }
}

/// How far the cache can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Not filled yet; the last error, if the first list failed.
    Pending(Option<String>),
    /// Filled, and kept up to date as well as the connection allows.
    Synced,
    /// The API server does not serve the kind: its CRD is not installed.
    NotServed,
}

#[derive(Debug)]
struct Inner<T> {
    objects: BTreeMap<Key, Entry<T>>,
    arriving: BTreeMap<Key, Entry<T>>,
    sync: Sync,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Cache<T> {
    kind: &'static str,
    inner: RwLock<Inner<T>>,
}

impl<T: PartialEq> Cache<T> {
    /// An empty cache for objects of `kind`.
    pub fn new(kind: &'static str) -> Self {
        let inner = Inner { objects: BTreeMap::new(), arriving: BTreeMap::new(), sync: Sync::Pending(None) };
        Self { kind, inner: RwLock::new(inner) }
    }

    /// The kind it holds.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// How far it can be trusted.
    pub fn sync(&self) -> Sync {
        self.read().sync.clone()
    }

    /// How many objects it holds.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.read().objects.is_empty()
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Entry<T>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, sorted by key.
    pub fn snapshot(&self) -> BTreeMap<Key, Entry<T>> {
        self.read().objects.clone()
    }

    /// Takes one event of the watch; `keep` reduces an object to what is held.
    ///
    /// Returns whether what is held has changed.
    pub fn observe<K>(&self, event: Event<K>, keep: impl Fn(K) -> (Key, Entry<T>)) -> bool {
        match event {
            Event::Init => {
                self.write().arriving.clear();
                false
            }
            Event::InitApply(object) => {
                let (key, entry) = keep(object);
                self.write().arriving.insert(key, entry);
                false
            }
            Event::InitDone => self.swap(),
            Event::Apply(object) => {
                let (key, entry) = keep(object);
                self.put(key, entry)
            }
            Event::Delete(object) => {
                let (key, entry) = keep(object);
                self.remove(&key, &entry)
            }
        }
    }

    /// Puts in the answer to a write of ours. Returns whether what is held has changed.
    pub fn put(&self, key: Key, entry: Entry<T>) -> bool {
        let mut inner = self.write();
        match inner.objects.get(&key) {
            Some(held) if held.version == entry.version || held.is_newer_than(&entry.version) => false,
            Some(held) => {
                let changed = held.uid != entry.uid || held.value != entry.value;
                inner.objects.insert(key, entry);
                changed
            }
            None => {
                inner.objects.insert(key, entry);
                true
            }
        }
    }

    /// Takes out an object that we deleted, if it is still the one with this uid.
    pub fn forget(&self, key: &Key, uid: &str) {
        let mut inner = self.write();
        if inner.objects.get(key).is_some_and(|held| held.uid == uid) {
            inner.objects.remove(key);
        }
    }

    /// Notes that listing failed. Until the first success there is nothing to fall back on.
    pub fn failed(&self, error: String) {
        let mut inner = self.write();
        if inner.sync != Sync::Synced {
            inner.sync = Sync::Pending(Some(error));
        }
    }

    /// Notes that the kind is not served. Returns whether that is news.
    pub fn not_served(&self) -> bool {
        let mut inner = self.write();
        let news = inner.sync != Sync::NotServed;
        inner.sync = Sync::NotServed;
        inner.objects.clear();
        inner.arriving.clear();
        news
    }

    fn remove(&self, key: &Key, last: &Entry<T>) -> bool {
        let mut inner = self.write();
        match inner.objects.get(key) {
            // Created anew by us before the deletion of its predecessor was heard of.
            Some(held) if held.is_newer_than(&last.version) => false,
            Some(_) => inner.objects.remove(key).is_some(),
            None => false,
        }
    }

    fn swap(&self) -> bool {
        let mut inner = self.write();
        let mut arrived = std::mem::take(&mut inner.arriving);
        for (key, entry) in &mut arrived {
            if let Some(held) = inner.objects.get(key).filter(|held| held.is_newer_than(&entry.version)) {
                *entry = held.clone();
            }
        }
        let same = inner.sync == Sync::Synced
            && inner.objects.len() == arrived.len()
            && inner.objects.iter().zip(&arrived).all(|((old_key, old), (new_key, new))| {
                old_key == new_key && old.uid == new.uid && old.value == new.value
            });
        inner.objects = arrived;
        inner.sync = Sync::Synced;
        !same
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<T>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<T>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Object = (&'static str, &'static str, &'static str, u8);

    fn keep((name, uid, version, value): Object) -> (Key, Entry<u8>) {
        let key = Key { namespace: "ns".to_owned(), name: name.to_owned() };
        (key, Entry { uid: uid.to_owned(), version: version.to_owned(), value: Arc::new(value) })
    }

    fn cache(objects: &[Object]) -> Cache<u8> {
        let cache = Cache::new("Thing");
        list(&cache, objects);
        cache
    }

    fn list(cache: &Cache<u8>, objects: &[Object]) -> bool {
        cache.observe(Event::Init, keep);
        for object in objects {
            cache.observe(Event::InitApply(*object), keep);
        }
        cache.observe(Event::InitDone, keep)
    }

    fn write(cache: &Cache<u8>, object: Object) -> bool {
        let (key, entry) = keep(object);
        cache.put(key, entry)
    }

    fn held(cache: &Cache<u8>) -> Vec<(String, u8)> {
        cache.snapshot().into_iter().map(|(key, entry)| (key.to_string(), *entry.value)).collect()
    }

    #[test]
    fn is_pending_until_the_first_list_is_complete() {
        let cache = Cache::<u8>::new("Thing");
        cache.failed("no way".to_owned());
        assert_eq!(cache.sync(), Sync::Pending(Some("no way".to_owned())));
        cache.observe(Event::Init, keep);
        cache.observe(Event::InitApply(("a", "1", "5", 1)), keep);
        assert!(cache.is_empty());
        assert!(cache.observe(Event::InitDone, keep));
        assert_eq!((cache.sync(), cache.len()), (Sync::Synced, 1));
        cache.failed("a hiccup".to_owned());
        assert_eq!(cache.sync(), Sync::Synced);
    }

    #[test]
    fn own_writes_are_seen_at_once_and_their_echo_is_no_change() {
        let cache = cache(&[("a", "1", "5", 1)]);
        assert!(write(&cache, ("a", "1", "9", 2)));
        assert!(!cache.observe(Event::Apply(("a", "1", "9", 2)), keep));
        assert_eq!(held(&cache), [("ns/a".to_owned(), 2)]);
    }

    #[test]
    fn late_events_do_not_take_a_write_back() {
        let cache = cache(&[("a", "1", "5", 1)]);
        write(&cache, ("a", "1", "9", 2));
        assert!(!cache.observe(Event::Apply(("a", "1", "7", 3)), keep));
        assert_eq!(held(&cache), [("ns/a".to_owned(), 2)]);
        write(&cache, ("a", "2", "12", 4));
        assert!(!cache.observe(Event::Delete(("a", "1", "11", 3)), keep));
        assert_eq!(held(&cache), [("ns/a".to_owned(), 4)]);
        assert!(cache.observe(Event::Delete(("a", "2", "13", 4)), keep));
        assert!(cache.is_empty());
    }

    #[test]
    fn events_that_change_nothing_kept_are_no_news_but_are_taken() {
        let cache = cache(&[("a", "1", "5", 1)]);
        assert!(!cache.observe(Event::Apply(("a", "1", "6", 1)), keep));
        assert_eq!(cache.snapshot().into_values().next().unwrap().version, "6");
        assert!(
            cache.observe(Event::Apply(("a", "2", "7", 1)), keep),
            "another object of the same name is news"
        );
        assert!(!cache.observe(Event::Delete(("b", "1", "8", 1)), keep));
    }

    #[test]
    fn a_new_list_replaces_all_but_newer_writes() {
        let cache = cache(&[("a", "1", "5", 1), ("b", "2", "6", 1)]);
        write(&cache, ("a", "1", "9", 2));
        assert!(list(&cache, &[("a", "1", "5", 1), ("c", "3", "7", 1)]));
        assert_eq!(held(&cache), [("ns/a".to_owned(), 2), ("ns/c".to_owned(), 1)]);
        assert!(!list(&cache, &[("a", "1", "9", 2), ("c", "3", "7", 1)]));
    }

    #[test]
    fn forgets_only_the_object_that_was_deleted() {
        let cache = cache(&[("a", "1", "5", 1)]);
        let key = Key { namespace: "ns".to_owned(), name: "a".to_owned() };
        cache.forget(&key, "0");
        assert_eq!(cache.len(), 1);
        cache.forget(&key, "1");
        assert!(cache.is_empty());
    }

    #[test]
    fn a_kind_that_is_no_longer_served_is_empty_once() {
        let cache = cache(&[("a", "1", "5", 1)]);
        assert!(cache.not_served());
        assert!(!cache.not_served());
        assert!(cache.is_empty());
        assert!(list(&cache, &[]), "that the kind is served is news even where there is nothing of it");
    }
}
