//! The files that tidy checks, read once: every text file of the workspace with a checked extension, by its path from the
//! workspace's root.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Files of these types are read.
const EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "py", "mjs", "sh", "sql", "lua", "yaml"];
/// Folders without sources of ours: build output, version control, installed packages, golden files.
const SKIPPED_FOLDERS: [&str; 4] = ["target", ".git", "node_modules", "fixtures"];

/// Checked files, sorted by path.
pub(crate) struct SourceTree {
    pub(crate) files: Vec<SourceFile>,
}

/// A file and its text.
pub(crate) struct SourceFile {
    /// Path from the workspace's root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceTree {
    /// Reads the files below `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        read_folder(root, "", &mut files)?;
        files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(Self { files })
    }

    /// A tree of the given paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() }).collect() }
    }

    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }

    /// The file at a path, if the tree has it.
    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The text of the file at a path; empty without such a file.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.file(path).map_or("", |file| &file.text)
    }
}

impl SourceFile {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == extension)
    }

    /// True for files that hold only tests, benchmarks or fuzz targets.
    pub(crate) fn is_test(&self) -> bool {
        ["/tests/", "/benches/", "/conformance/"].iter().any(|folder| self.path.contains(folder))
            || ["/tests.rs", "/conformance.rs", "/testing.rs", "/scripted.rs", "/test_callers.rs"]
                .iter()
                .any(|name| self.path.ends_with(name))
    }

    /// The folder of the package that the file belongs to, such as `crates/tollgate-core`; empty outside of all packages.
    pub(crate) fn package(&self) -> &str {
        let parts = if self.path.starts_with("crates/") { 2 } else { 1 };
        let end = self.path.match_indices('/').nth(parts - 1).map_or(0, |(end, _)| end);
        &self.path[..end]
    }
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<SourceFile>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (path, relative) = (entry.path(), format!("{prefix}{name}"));
        if entry.file_type()?.is_dir() {
            if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                read_folder(&path, &format!("{relative}/"), files)?;
            }
        } else if path.extension().is_some_and(|own| EXTENSIONS.iter().any(|known| own == *known)) {
            let text = fs::read_to_string(&path).with_context(|| relative.clone())?;
            files.push(SourceFile { path: relative, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_of_a_file_is_its_crate_or_top_folder() {
        let tree = SourceTree::of(&[("crates/a/src/lib.rs", ""), ("xtask/src/main.rs", ""), ("README.md", "")]);
        assert_eq!(tree.files.iter().map(SourceFile::package).collect::<Vec<_>>(), ["crates/a", "xtask", ""]);
    }

    #[test]
    fn workspace_is_read_without_build_output() {
        let tree = SourceTree::read(&crate::shell::root()).unwrap();
        assert!(tree.file("xtask/src/tidy/source_tree.rs").is_some());
        assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
