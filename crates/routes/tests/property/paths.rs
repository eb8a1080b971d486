//! How paths are read.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use routes::eval::PathNormalization;

fn path() -> impl Strategy<Value = String> {
    let bits = vec![
        "/", "/", ".", "..", "%2e", "%2E", ";", "a", "b", "%41", "%2f", "%", "%%3", "0", "\\", "%5c", "//",
        "~",
    ];
    vec(select(bits), 0..12).prop_map(|bits| format!("/{}", bits.concat()))
}

proptest! {
    #![proptest_config(crate::cases(256))]

    /// No dot segment and no encoded dot is left, so that a backend that resolves them once more changes nothing.
    #[test]
    fn normalized_paths_have_no_dot_segments(path in path()) {
        for paths in [PathNormalization::BaseUnpatched, PathNormalization::Base] {
            let Some(routed) = paths.apply(&path) else { continue };
            prop_assert!(routed.starts_with('/'), "{path} -> {routed}");
            prop_assert!(!routed.contains('\\'), "{path} -> {routed}");
            prop_assert!(
                !routed.split('/').any(|segment| matches!(segment, "." | "..")),
                "{path} -> {routed}"
            );
            prop_assert!(!routed.to_ascii_lowercase().contains("%2e"), "{path} -> {routed}");
            prop_assert_eq!(PathNormalization::None.apply(&routed), Some(routed.clone()));
        }
    }
}
