//! `cargo xtask fuzz`: builds the targets in `fuzz/` with coverage on the stable compiler, seeds them from the golden
//! fixtures, and runs each for a bounded time, one per processor at once.

mod seeds;

use std::{
    fs::{self, File},
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, bail};

use crate::shell::{self, StepOutcome};

/// The targets in the order in which they run; the same as in `fuzz/Cargo.toml`.
pub(crate) const TARGETS: [&str; 7] =
    ["sse", "openai_request", "gemini_request", "anthropic_request", "responses_request", "stream_cuts", "translate"];

/// Inputs per target in `cargo xtask check`: every seed and some mutations.
const CHECK_RUNS: u32 = 20_000;

/// How long a target runs and from what it starts.
#[derive(Clone, Copy)]
enum Extent {
    /// A fixed seed and number of inputs, so that checks of one tree differ little between runs and machines. The random keys
    /// of hash maps change coverage, and with it some of the later inputs.
    Fixed { runs: u32 },
    /// New inputs, and those that earlier runs kept.
    Exploring { seconds: u32 },
}

/// Coverage instrumentation without a sanitizer: the flags of `cargo fuzz run --sanitizer none`. They work on stable.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 --cfg fuzzing";

/// `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct FuzzOptions {
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// Run only this input, such as one that a crash left behind. Needs `--target`.
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

/// `cargo xtask fuzz`.
pub(crate) fn run_alone(options: &FuzzOptions) -> Result<()> {
    if let Some(why) = missing_compiler() {
        bail!("the fuzz targets cannot be built: {why}");
    }
    let chosen: Vec<&str> = TARGETS.into_iter().filter(|name| options.target.as_deref().is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        bail!("unknown target; targets are {}", TARGETS.join(", "));
    }
    let programs = build()?;
    if let (Some(input), [name]) = (&options.input, &chosen[..]) {
        return shell::run(Command::new(programs.join(name)).arg(input));
    }
    fuzz(&programs, &chosen, Extent::Exploring { seconds: options.seconds })
}

/// The step of `cargo xtask check`.
pub(crate) fn step() -> Result<StepOutcome> {
    if let Some(why) = missing_compiler() {
        return Ok(StepOutcome::Skipped(why));
    }
    let programs = build()?;
    fuzz(&programs, &TARGETS, Extent::Fixed { runs: CHECK_RUNS })?;
    Ok(StepOutcome::Passed)
}

/// Why libFuzzer, which is C++, cannot be built; `None` when it can.
fn missing_compiler() -> Option<String> {
    let error = shell::ensure_debian("c++", "g++").err()?;
    Some(format!("the fuzzer needs a C++ compiler: {error:#}"))
}

/// Builds every target; returns the folder with the programs.
fn build() -> Result<PathBuf> {
    let version = shell::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` prints no host")?;
    let output = shell::target_dir().join("fuzz");
    let manifest = shell::root().join("fuzz/Cargo.toml");
    let mut command = shell::cargo(&["build", "--release", "--quiet", "--bins", "--manifest-path"]);
    // With `--target`, the flags apply to the fuzz targets but not to build scripts and macros.
    command.arg(manifest).args(["--target", host]).env("CARGO_TARGET_DIR", &output).env("RUSTFLAGS", COVERAGE);
    shell::run(&mut command)?;
    Ok(output.join(host).join("release"))
}

fn fuzz(programs: &Path, targets: &[&str], extent: Extent) -> Result<()> {
    let home = shell::work_folder().join("fuzz");
    let dictionary = seeds::write(&shell::root().join("crates/tollgate-protocol/fixtures"), &home)?;
    // A target uses one processor.
    let (next, found) = (Mutex::new(targets.iter()), Mutex::new(Vec::new()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(name) = take() {
                    if let Err(error) = fuzz_target(&programs.join(name), name, &home, &dictionary, extent) {
                        println!("    {name}: {error:#}");
                        found.lock().unwrap_or_else(PoisonError::into_inner).push(*name);
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if found.is_empty() { Ok(()) } else { bail!("fuzzing found failures in: {}", found.join(", ")) }
}

fn fuzz_target(program: &Path, name: &str, home: &Path, dictionary: &Path, extent: Extent) -> Result<()> {
    let corpus = home.join("corpus").join(name);
    let seeds = home.join("seeds").join(name);
    let artifacts = home.join("artifacts").join(name);
    let log = home.join(format!("{name}.log"));
    fs::create_dir_all(&artifacts)?;
    let file = File::create(&log)?;
    let mut command = Command::new(program);
    match extent {
        Extent::Fixed { runs } => {
            // The order in which a folder is read differs between file systems; a list has one order.
            let list = home.join("seeds").join(format!("{name}.list"));
            fs::write(&list, seeds::list(&seeds)?)?;
            command.args(["-seed=1", &format!("-runs={runs}"), &format!("-seed_inputs=@{}", list.display())]);
        }
        // libFuzzer writes new inputs to the first folder.
        Extent::Exploring { seconds } => {
            fs::create_dir_all(&corpus)?;
            command.args([&corpus, &seeds]).arg(format!("-max_total_time={seconds}"));
        }
    }
    command.arg(format!("-dict={}", dictionary.display()));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    // An input that takes more than ten seconds or a gigabyte is a failure.
    command.args(["-timeout=10", "-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"]);
    command.env("RUST_BACKTRACE", "0");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status()?;
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        let figure = |of: &str| output.lines().rev().find_map(|line| line.strip_prefix(of)).unwrap_or("?").trim().to_owned();
        println!(
            "    {name}: {} runs, {} new inputs, no failure",
            figure("stat::number_of_executed_units:"),
            figure("stat::new_units_added:")
        );
        return Ok(());
    }
    let input = output.lines().find_map(|line| line.split("Test unit written to ").nth(1)).unwrap_or("(no input written)");
    let words = output.lines().skip_while(|line| !line.contains("panicked at") && !line.starts_with("==")).take(12);
    bail!(
        "it failed ({status})\n{}\n    repeat: cargo xtask fuzz --target {name} --input {input}\n    log: {}",
        words.collect::<Vec<_>>().join("\n"),
        log.display()
    )
}
