//! Whether a program runs without anything else of a file system.

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

/// Refuses a program that names an interpreter (`ld.so`) or a library. Position-independent ones have a dynamic
/// section nevertheless, for their own relocations.
pub(super) fn check_static(program: &[u8]) -> Result<()> {
    let header = FileHeader64::<Endianness>::parse(program).context("it is no 64-bit ELF file")?;
    let endian = header.endian()?;
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        bail!("it is an ELF file, but no program");
    }
    for segment in header.program_headers(endian, program)? {
        if let Some(interpreter) = segment.interpreter(endian, program)? {
            bail!("it is linked dynamically, by {}", String::from_utf8_lossy(interpreter));
        }
        let dynamic = segment.dynamic(endian, program)?.unwrap_or_default();
        let needed = dynamic.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED).count();
        if needed > 0 {
            bail!("it needs {needed} shared libraries");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tells_static_programs_from_dynamic_ones() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("main.rs");
        std::fs::write(&source, "fn main() {}").unwrap();
        let build = |name: &str, feature: &str| {
            let program = folder.path().join(name);
            let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
            let status = Command::new(rustc)
                .args(["--edition", "2024", "-C", &format!("target-feature={feature}crt-static"), "-o"])
                .args([&program, &source])
                .status()
                .unwrap();
            assert!(status.success());
            std::fs::read(program).unwrap()
        };
        check_static(&build("static", "+")).unwrap();
        let error = check_static(&build("dynamic", "-")).unwrap_err();
        assert!(error.to_string().contains("linked dynamically"), "{error}");
    }

    #[test]
    fn refuses_what_is_no_program() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x01\x01\x01"] {
            assert!(check_static(bytes).is_err());
        }
    }
}
