//! `cargo xtask dist`: builds the program with profile-guided optimisation for requests.
//!
//! The program is built twice: once with counters, which a gateway then fills with requests of every protocol, and once with these
//! counts. The compiler keeps the code that requests run together and puts the rest elsewhere, so that a request takes fewer
//! instructions and fewer lines of the instruction cache.
//! <https://doc.rust-lang.org/rustc/profile-guided-optimization.html>

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    bench::{
        self,
        targets::{BOUNDED_KEY, KEY, free_ports, http_get, start_gateway, start_upstream, wait_for},
    },
    shell,
};

/// Cargo's profile of both builds.
pub(crate) const PROFILE: &str = "dist";
/// A `llvm-profdata` of Debian. It need not be of the compiler's version of LLVM, only as new as the format that the counters are
/// written in.
const DEBIAN_PROFDATA: &str = "/usr/lib/llvm-19/bin/llvm-profdata";
/// The programs of the bench: some send the requests and answer them, and all are needed beside the program to measure it.
const BENCH_PROGRAMS: [&str; 5] = ["fast-upstream", "load", "bare-proxy", "usage-records", "keys"];

#[derive(Args, Default)]
pub(crate) struct DistOptions {
    /// Target processors of the program, such as x86-64-v3 or native; it does not start on older ones. Without this option, it runs on
    /// every processor of the architecture.
    #[arg(long)]
    cpu: Option<String>,
}

/// A kind of requests in the profile.
struct Load {
    path: &'static str,
    model: &'static str,
    key: &'static str,
    arguments: &'static [&'static str],
}

const CHAT: &str = "v1/chat/completions";
const NATIVE: &str = "v1beta/models/bench-native:generateContent";
const CLOSED_LOOP: &[&str] = &["max", "--connections", "64", "--requests", "20000"];
const STREAMS: &[&str] = &["stream", "--connections", "100", "--ramp-ms", "500", "--seconds", "6"];

/// Chat first and most, as with most callers; each protocol with an upstream that speaks it, and translated ones. (The chat request of
/// the load client has a `temperature`, which Messages upstreams do not take.)
const LOADS: [Load; 8] = [
    Load { path: CHAT, model: "bench-chat", key: KEY, arguments: CLOSED_LOOP },
    Load { path: CHAT, model: "bench-chat", key: BOUNDED_KEY, arguments: CLOSED_LOOP },
    Load { path: CHAT, model: "bench-chat", key: KEY, arguments: STREAMS },
    Load { path: NATIVE, model: "bench-native", key: KEY, arguments: CLOSED_LOOP },
    Load { path: "v1/messages", model: "bench-messages", key: KEY, arguments: CLOSED_LOOP },
    Load { path: "v1/responses", model: "bench-responses", key: KEY, arguments: CLOSED_LOOP },
    Load { path: CHAT, model: "bench-native", key: KEY, arguments: CLOSED_LOOP },
    Load { path: NATIVE, model: "bench-chat", key: KEY, arguments: CLOSED_LOOP },
];

/// Builds the program and prints its path.
pub(crate) fn run(options: &DistOptions) -> Result<()> {
    let programs = build(options)?;
    println!("built {}", programs.join("tollgate").display());
    Ok(())
}

/// Builds the program and returns [`folder`].
pub(crate) fn build(options: &DistOptions) -> Result<PathBuf> {
    let profdata = llvm_profdata()?;
    let home = folder();
    let counts = home.join("counts");
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts)?;
    println!("1 of 4: building the programs of the bench");
    bench::build("release", &[bench::PACKAGE])?;
    for program in BENCH_PROGRAMS {
        copy_program(&shell::target_dir().join("release").join(program), &home.join(program))?;
    }
    println!("2 of 4: building the program with counters");
    build_with(&home, "counted", &format!("-Cprofile-generate={}", counts.display()), options)?;
    println!("3 of 4: counting {} kinds of requests", LOADS.len());
    count_requests(&home)?;
    let profile = home.join("requests.profdata");
    shell::output(Command::new(profdata).args(["merge", "-o"]).arg(&profile).arg(&counts))?;
    println!("4 of 4: building the program with the counts");
    build_with(&home, "optimised", &format!("-Cprofile-use={}", profile.display()), options)?;
    Ok(home)
}

/// Destination of the program, beside the programs of the bench.
pub(crate) fn folder() -> PathBuf {
    shell::work_folder().join(PROFILE)
}

/// Builds with these flags of the compiler in a folder of their own, and copies the program to `home`.
fn build_with(home: &Path, folder: &str, flags: &str, options: &DistOptions) -> Result<()> {
    // Because a target is named, build scripts and macros are built without the flags.
    let host = shell::output(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not print its host")?;
    let folder = home.join(folder);
    let mut cargo =
        shell::cargo(&["build", "--quiet", "--locked", "--profile", PROFILE, "--package", "tollgate", "--target", host]);
    let mut flags = flags.to_owned();
    if let Some(cpu) = &options.cpu {
        flags = format!("{flags} -Ctarget-cpu={cpu}");
        // SQLite and the allocator are written in C.
        cargo.env("CFLAGS", format!("-march={cpu}"));
    }
    shell::run(cargo.arg("--target-dir").arg(&folder).env("RUSTFLAGS", flags))?;
    copy_program(&folder.join(host).join(PROFILE).join("tollgate"), &home.join("tollgate"))
}

/// Copies a program, also over one that is running: that process keeps the file it was started from.
fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))?;
    Ok(())
}

/// Sends requests of every kind to a gateway, which writes its counts when it ends.
fn count_requests(programs: &Path) -> Result<()> {
    let folder = shell::temp_dir("tollgate-dist-")?;
    let ports = free_ports(2)?;
    let [upstream, address] = [ports[0], ports[1]].map(|port| format!("127.0.0.1:{port}"));
    let _upstream = start_upstream(programs, &upstream)?;
    let _gateway = start_gateway(programs, folder.path(), "background", ports[1], &upstream)?;
    wait_for(&address)?;
    http_get(&upstream, "/set?delay=0&chunks=100&interval=20")?;
    for load in &LOADS {
        let mut command = Command::new(programs.join("load"));
        command.args(load.arguments).args(["--url", &format!("http://{address}/{}", load.path), "--model", load.model]);
        command.args(["--header", &format!("authorization: Bearer {}", load.key)]);
        match load.path {
            NATIVE => _ = command.arg("--native"),
            "v1/messages" => _ = command.args(["--header", "anthropic-version: 2023-06-01"]),
            _ => {}
        }
        let row: Value = serde_json::from_str(shell::output(&mut command)?.trim())?;
        ensure!(row["errors"] == 0, "requests for {} at {} failed: {}", load.model, load.path, row["last_error"]);
    }
    Ok(())
}

/// The program that merges counts: of the toolchain (`rustup component add llvm-tools`), or of Debian.
fn llvm_profdata() -> Result<PathBuf> {
    let libraries = shell::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
    let of_toolchain = Path::new(libraries.trim()).with_file_name("bin").join("llvm-profdata");
    if of_toolchain.exists() {
        return Ok(of_toolchain);
    }
    shell::ensure_debian(DEBIAN_PROFDATA, "llvm-19")
        .context("`llvm-profdata` is needed to merge the counts; `rustup component add llvm-tools` installs it")?;
    Ok(PathBuf::from(DEBIAN_PROFDATA))
}
