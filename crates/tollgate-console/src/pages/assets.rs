//! Style sheets, scripts, icons and the font, embedded in the program. The address of an asset holds a hash of its content, so that
//! browsers may cache it without a time limit. References between assets are written by their plain names and replaced by these
//! addresses. Comments of scripts are left out.

use std::{collections::HashMap, io::Write as _, sync::LazyLock};

use axum::body::Body;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::square::accepts_gzip;

/// The folder of the addresses, below the console's own path.
pub(crate) const FOLDER: &str = "/assets/";
/// A year: the longest time that caches honour.
const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

#[derive(Clone, Copy)]
struct Source {
    /// Its name in templates and other assets.
    name: &'static str,
    content: &'static [u8],
}

macro_rules! source {
    ($name:literal) => {
        source!($name, $name)
    };
    ($name:literal, $file:literal) => {
        Source { name: $name, content: include_bytes!(concat!("../../assets/", $file)) }
    };
}

/// Assets, those that others refer to first.
static SOURCES: &[Source] = &[
    source!("geist.woff2", "vendor/geist-5.3.0-latin-wght-normal.woff2"),
    source!("icons.svg"),
    source!("mark.svg"),
    source!("tokens.css"),
    source!("components.css"),
    source!("pages.css"),
    source!("callers.css"),
    source!("htmx.js", "vendor/htmx-4.0.1.min.js"),
    source!("zone.js"),
    source!("drafts.js"),
    source!("page.js"),
    source!("parts.js"),
    source!("events.js"),
    source!("drawer.js"),
    source!("log.js"),
    source!("palette.js"),
    source!("refresh.js"),
    source!("tables.js"),
    source!("stages.js"),
    source!("operators.js"),
    source!("download.js"),
    source!("choose.js"),
    source!("order.js"),
    source!("offers.js"),
    source!("contents.js"),
    source!("home.js"),
    source!("passkey.js"),
    source!("password.js"),
    source!("markdown.js"),
    source!("playground-code.js"),
    source!("playground-protocols.js"),
    source!("connect.js"),
    source!("playground-column.js"),
    source!("playground.js"),
];

/// An asset as it is served.
#[derive(Debug)]
struct Asset {
    name: &'static str,
    /// Its name with the hash.
    file: String,
    content_type: &'static str,
    body: Bytes,
    /// Left out where compression does not help.
    compressed: Option<Bytes>,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let mut made: Vec<Asset> = Vec::new();
    for source in SOURCES {
        let asset = Asset::new(*source, &made);
        made.push(asset);
    }
    made
});

static BY_FILE: LazyLock<HashMap<&'static str, &'static Asset>> =
    LazyLock::new(|| ASSETS.iter().map(|asset| (asset.file.as_str(), asset)).collect());

impl Asset {
    fn new(source: Source, before: &[Self]) -> Self {
        let (stem, extension) = source.name.rsplit_once('.').unwrap_or((source.name, ""));
        let is_text = extension != "woff2";
        let body = match extension {
            "js" => with_addresses(&without_comments(source.content), before),
            _ if is_text => with_addresses(source.content, before),
            _ => Bytes::from_static(source.content),
        };
        let hash = hex::encode(&Sha256::digest(&body)[..8]);
        let compressed = if is_text { compress(&body) } else { None };
        Self {
            name: source.name,
            file: format!("{stem}.{hash}.{extension}"),
            content_type: content_type(extension),
            body,
            compressed,
        }
    }
}

/// A script without the lines that are only a comment.
fn without_comments(script: &[u8]) -> Vec<u8> {
    let lines = script.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !line.trim_ascii_start().starts_with(b"//")).collect::<Vec<_>>().concat()
}

/// Replaces the names of other assets in quotes by their names with the hash; all are in the same folder.
fn with_addresses(content: &[u8], others: &[Asset]) -> Bytes {
    let Ok(text) = std::str::from_utf8(content) else { return Bytes::copy_from_slice(content) };
    let mut text = text.to_owned();
    for other in others {
        for (quoted, replaced) in [
            (format!("\"{}\"", other.name), format!("\"{}\"", other.file)),
            (format!("\"./{}\"", other.name), format!("\"./{}\"", other.file)),
        ] {
            text = text.replace(&quoted, &replaced);
        }
    }
    Bytes::from(text)
}

fn compress(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().filter(|compressed| compressed.len() < body.len()).map(Bytes::from)
}

fn content_type(extension: &str) -> &'static str {
    match extension {
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// The path of an asset, below the console's own path. Empty for an unknown name, which a test of the templates excludes.
pub(crate) fn path(name: &str) -> String {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    asset.map_or_else(String::new, |asset| format!("{FOLDER}{}", asset.file))
}

/// The asset with this file name; `None` if there is none, for instance because the name is of another version.
pub(crate) fn serve(file: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let asset = BY_FILE.get(file)?;
    let compressed = asset.compressed.as_ref().filter(|_| accepts_gzip(headers));
    let mut response = Response::new(Body::from(compressed.unwrap_or(&asset.body).clone()));
    *response.status_mut() = StatusCode::OK;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(CACHE_CONTROL));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if compressed.is_some() {
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn vendored_files_match_their_recorded_packages() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/vendor");
        let recorded: Vec<serde_json::Value> = serde_json::from_slice(&fs::read(folder.join("vendored.json")).unwrap()).unwrap();
        let mut known = vec!["vendored.json".to_owned()];
        for entry in &recorded {
            let (file, license) = (entry["file"].as_str().unwrap(), entry["license_file"].as_str().unwrap());
            let content = fs::read(folder.join(file)).unwrap();
            assert_eq!(hex::encode(Sha256::digest(&content)), entry["sha256"].as_str().unwrap(), "{file} was changed");
            assert!(file.contains(entry["version"].as_str().unwrap()), "{file}");
            assert!(!fs::read_to_string(folder.join(license)).unwrap().is_empty(), "{license}");
            known.extend([file.to_owned(), license.to_owned()]);
        }
        for found in fs::read_dir(&folder).unwrap() {
            let name = found.unwrap().file_name().into_string().unwrap();
            assert!(known.contains(&name), "{name} is not recorded in vendored.json");
        }
    }

    #[test]
    fn references_between_assets_have_the_hash() {
        let tokens = ASSETS.iter().find(|asset| asset.name == "tokens.css").unwrap();
        let text = std::str::from_utf8(&tokens.body).unwrap();
        let font = ASSETS.iter().find(|asset| asset.name == "geist.woff2").unwrap();
        assert!(text.contains(&format!("url(\"{}\")", font.file)), "the font is not referred to by its hash");
        for asset in ASSETS.iter().filter(|asset| asset.content_type.starts_with("text/")) {
            let text = std::str::from_utf8(&asset.body).unwrap();
            for other in SOURCES {
                assert!(!text.contains(&format!("\"./{}\"", other.name)), "{} refers to {}", asset.name, other.name);
            }
        }
    }

    #[test]
    fn scripts_are_served_without_lines_of_comments() {
        let script = b"// About.\nconst a = 1; // kept\n  // More.\n\nb(\"//x\");\n";
        assert_eq!(without_comments(script), b"const a = 1; // kept\n\nb(\"//x\");\n");
        // In a text over several lines, a line that begins with two slashes would be left out, too.
        let is_script = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "js");
        for asset in ASSETS.iter().filter(|asset| is_script(asset.name)) {
            let text = std::str::from_utf8(&asset.body).unwrap();
            assert!(!text.lines().any(|line| line.trim_start().starts_with("//")), "{}", asset.name);
            let is_over_lines =
                |line: &str| !asset.name.starts_with("htmx") && line.replace("\\`", "").matches('`').count() % 2 == 1;
            assert!(
                asset.name == "markdown.js" || !text.lines().any(is_over_lines),
                "{} has a text over several lines",
                asset.name
            );
        }
    }

    #[test]
    fn assets_are_served_immutable_under_their_content_hash_only() {
        let file = path("components.css").trim_start_matches(FOLDER).to_owned();
        let plain = serve(&file, &HeaderMap::new()).unwrap();
        assert_eq!(plain.headers()["cache-control"], CACHE_CONTROL);
        assert!(!plain.headers().contains_key("content-encoding"));
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(serve(&file, &headers).unwrap().headers()["content-encoding"], "gzip");
        for unknown in ["components.css", "components.0000000000000000.css", "../lib.rs", ""] {
            assert!(serve(unknown, &HeaderMap::new()).is_none(), "{unknown}");
        }
    }

    #[test]
    fn compressed_assets_stay_within_the_size_budget() {
        let weight = |asset: &Asset| asset.compressed.as_ref().unwrap_or(&asset.body).len();
        let total: usize = ASSETS.iter().map(weight).sum();
        assert!(total < 105 << 10, "{total} bytes compressed leave too little for the page itself");
    }
}
