//! A run as pictures: rates against size under the roof that the machine has, and speed-ups as bars. SVG.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernelhub::dtype::DType;
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::ranged1d::IntoSegmentedCoord as _;
use plotters::drawing::IntoDrawingArea as _;
use plotters::element::{Circle, EmptyElement, PathElement, Rectangle, Text};
use plotters::prelude::{Color as _, IntoFont as _, IntoLogRange as _};
use plotters::series::{LineSeries, PointSeries};
use plotters::style::{BLACK, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::error::BenchmarkError;
use super::report::{Case, Report};
use super::roof::{Bound, Ceilings};

const SIZE: (u32, u32) = (760, 460);
const FONT: &str = "sans-serif";
/// One colour for each dtype, told apart by those who see fewer colours, too.
const COLOURS: [(DType, RGBColor); 3] =
    [(DType::F32, RGBColor(0, 114, 178)), (DType::Bf16, RGBColor(213, 94, 0)), (DType::F16, RGBColor(0, 158, 115))];
const ROOF: RGBColor = RGBColor(90, 90, 90);
const REFERENCE: RGBColor = RGBColor(160, 160, 160);

/// Writes the pictures of a run into a folder and returns their paths: for each layer one of those cases that memory
/// bounds and one of those that arithmetic bounds, and one of all speed-ups.
pub(crate) fn draw(report: &Report, folder: &Path) -> Result<Vec<PathBuf>, BenchmarkError> {
    std::fs::create_dir_all(folder).map_err(|source| {
        let (action, path) = ("make", folder.to_path_buf());
        BenchmarkError::File { action, path, source }
    })?;
    let name = report.kernel.repo.rsplit('/').next().unwrap_or(&report.kernel.repo).to_owned();
    let mut groups: BTreeMap<(String, bool), Vec<&Case>> = BTreeMap::new();
    for case in &report.results {
        let is_arithmetic = case.ceiling.is_some_and(|ceiling| ceiling.bound == Bound::Arithmetic);
        groups.entry((case.layer.clone(), is_arithmetic)).or_default().push(case);
    }
    let mut paths = Vec::new();
    for ((layer, is_arithmetic), cases) in groups {
        let kind = if is_arithmetic { "arithmetic" } else { "memory" };
        let path = folder.join(format!("{name}-{layer}-{kind}.svg"));
        let title = format!("{}:{layer} on {}", report.kernel.name(), report.device);
        let picture = Rates { title, is_arithmetic, cases, ceilings: report.ceilings.as_ref() };
        picture.draw(&path).map_err(|error| plot_fault(&path, &*error))?;
        paths.push(path);
    }
    let path = folder.join(format!("{name}-speedup.svg"));
    speedups(report, &path).map_err(|error| plot_fault(&path, &*error))?;
    paths.push(path);
    Ok(paths)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn plot_fault(path: &Path, error: &dyn std::error::Error) -> BenchmarkError {
    BenchmarkError::Plot { path: path.to_path_buf(), reason: error.to_string() }
}

fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().into()
}

fn colour(dtype: DType) -> RGBColor {
    COLOURS.iter().find(|(known, _)| *known == dtype).map_or(BLACK, |(_, colour)| *colour)
}

/// Rates of one layer against size.
struct Rates<'a> {
    title: String,
    is_arithmetic: bool,
    cases: Vec<&'a Case>,
    ceilings: Option<&'a Ceilings>,
}

impl Rates<'_> {
    /// Where a case stands: bytes, or operations.
    fn size(&self, case: &Case) -> f64 {
        (if self.is_arithmetic { case.amounts.flop.unwrap_or_default() } else { case.amounts.bytes() }).max(1) as f64
    }

    /// What it reaches in a time, in GB/s or GFLOP/s.
    fn rate(&self, case: &Case, microseconds: f64) -> f64 {
        self.size(case) / microseconds / 1e3
    }

    fn dtypes(&self) -> Vec<DType> {
        let known = COLOURS.map(|(dtype, _)| dtype);
        known.into_iter().filter(|dtype| self.cases.iter().any(|case| case.dtype == *dtype)).collect()
    }

    /// The roof over sizes, for each line: its name and its points.
    fn roofs(&self, low: f64, high: f64) -> Vec<(String, Vec<(f64, f64)>)> {
        let Some(ceilings) = self.ceilings else { return Vec::new() };
        if self.is_arithmetic {
            let flat = |rate: f64, name: &str| (format!("{name} ({rate:.0} GFLOP/s)"), vec![(low, rate), (high, rate)]);
            let dot = ceilings.bf16_dot_gflop_per_s.map(|rate| flat(rate, "bf16 dot products"));
            return [flat(ceilings.f32_fma_gflop_per_s, "f32 products and sums")].into_iter().chain(dot).collect();
        }
        let reads = self.cases.iter().any(|case| case.ceiling.is_some_and(|ceiling| ceiling.bound == Bound::Read));
        let copies = self.cases.iter().any(|case| case.ceiling.is_some_and(|ceiling| ceiling.bound == Bound::Copy));
        let bounds = [(copies, Bound::Copy, "copy"), (reads, Bound::Read, "read")];
        let steps = 60_u32;
        let at = |step: u32| low * (high / low).powf(f64::from(step) / f64::from(steps));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in bytes")]
        let line = |bound| (0..=steps).map(|step| (at(step), ceilings.gb_per_s(bound, at(step) as u64))).collect();
        let wanted = bounds.into_iter().filter(|(is_there, ..)| *is_there);
        wanted.map(|(_, bound, name)| (format!("{name}, the best of the machine"), line(bound))).collect()
    }

    fn draw(&self, path: &Path) -> Drawn {
        let sizes: Vec<f64> = self.cases.iter().map(|case| self.size(case)).collect();
        let (low, high) = sizes.iter().fold((f64::MAX, 1.0_f64), |(low, high), size| (low.min(*size), high.max(*size)));
        let (low, high) = (low / 2.0, high * 2.0);
        let roofs = self.roofs(low, high);
        let medians = |case: &&Case| [case.median_us(), case.reference.median_us];
        let rates = self.cases.iter().flat_map(|case| medians(case).map(|median| self.rate(case, median)));
        let all: Vec<f64> =
            rates.chain(roofs.iter().flat_map(|(_, line)| line.iter().map(|(_, rate)| *rate))).collect();
        let (bottom, top) = all.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));

        // Below the lowest point there is room for the legend.
        let bottom = bottom / (top / bottom).powf(0.4);

        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, text(18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((low..high).log_scale(), (bottom / 2.0..top * 2.0).log_scale())?;
        let (of_size, unit) =
            if self.is_arithmetic { ("operations of a call", "GFLOP/s") } else { ("bytes of a call", "GB/s") };
        let scaled = |value: &f64| short(*value);
        let is_binary = !self.is_arithmetic;
        let sized = move |value: &f64| if is_binary { short_bytes(*value) } else { short(*value) };
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(of_size)
            .y_desc(unit)
            .x_label_formatter(&sized)
            .y_label_formatter(&scaled)
            .label_style(text(13))
            .draw()?;
        for (name, points) in roofs {
            let style = ShapeStyle::from(ROOF).stroke_width(2);
            let line = chart.draw_series(LineSeries::new(points, style))?;
            line.label(name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        }
        for dtype in self.dtypes() {
            let mut cases: Vec<&&Case> = self.cases.iter().filter(|case| case.dtype == dtype).collect();
            cases.sort_by(|a, b| self.size(a).total_cmp(&self.size(b)));
            let points = |of: fn(&Case) -> f64| -> Vec<(f64, f64)> {
                cases.iter().map(|case| (self.size(case), self.rate(case, of(case)))).collect()
            };
            let colour = colour(dtype);
            let ours = points(Case::median_us);
            chart.draw_series(LineSeries::new(ours.clone(), ShapeStyle::from(colour).stroke_width(2)))?;
            let dots = chart.draw_series(PointSeries::of_element(ours, 4, colour.filled(), &|at, size, style| {
                EmptyElement::at(at) + Circle::new((0, 0), size, style)
            }))?;
            dots.label(format!("kernel, {dtype}")).legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.filled()));
            let theirs = points(|case| case.reference.median_us);
            let rings =
                chart.draw_series(PointSeries::of_element(theirs, 4, colour.stroke_width(1), &|at, size, style| {
                    EmptyElement::at(at) + Circle::new((0, 0), size, style)
                }))?;
            rings
                .label(format!("reference, {dtype}"))
                .legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.stroke_width(1)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(REFERENCE)
            .label_font(text(13))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

/// A bar for every case, as long as the speed-up; a line at 1.
fn speedups(report: &Report, path: &Path) -> Drawn {
    let cases = &report.results;
    let rows = cases.len().max(1);
    let height = 90 + 22 * u32::try_from(rows)?;
    let longest = cases.iter().map(|case| case.speedup.ci95[1].max(case.speedup.ratio)).fold(1.0, f64::max);
    let area = SVGBackend::new(path, (SIZE.0, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{} on {}: times as fast as the reference", report.kernel.name(), report.device);
    let last = i32::try_from(rows)? - 1;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, text(18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(250)
        .build_cartesian_2d(0.0..longest * 1.12, (0..last).into_segmented())?;
    let name = |value: &plotters::coord::ranged1d::SegmentValue<i32>| {
        let plotters::coord::ranged1d::SegmentValue::CenterOf(at) = value else { return String::new() };
        let at = last - at;
        usize::try_from(at).ok().and_then(|at| cases.get(at)).map_or_else(String::new, Case::name)
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .y_labels(rows + 1)
        .y_label_formatter(&name)
        .label_style(text(12))
        .draw()?;
    for (at, case) in cases.iter().enumerate() {
        use plotters::coord::ranged1d::SegmentValue::{CenterOf, Exact};
        // The first case at the top.
        let row = last - i32::try_from(at)?;
        let mut bar = Rectangle::new(
            [(0.0, Exact(row)), (case.speedup.ratio, Exact(row + 1))],
            colour(case.dtype).mix(0.8).filled(),
        );
        bar.set_margin(3, 3, 0, 0);
        chart.draw_series([bar])?;
        let [from, to] = case.speedup.ci95;
        chart
            .draw_series([PathElement::new(vec![(from, CenterOf(row)), (to, CenterOf(row))], BLACK.stroke_width(1))])?;
        let shown = Text::new(
            format!("{:.2}", case.speedup.ratio),
            (to.max(case.speedup.ratio) + longest * 0.01, CenterOf(row)),
            text(12),
        );
        chart.draw_series([shown])?;
    }
    let ends = [0, last + 1].map(plotters::coord::ranged1d::SegmentValue::Exact);
    chart.draw_series([PathElement::new(ends.map(|end| (1.0, end)).to_vec(), ROOF.stroke_width(1))])?;
    area.present()?;
    Ok(())
}

/// `4k`, `4M`, `4G`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value < 1e3 => (value, ""),
        value if value < 1e6 => (value / 1e3, "k"),
        value if value < 1e9 => (value / 1e6, "M"),
        value => (value / 1e9, "G"),
    };
    if value < 10.0 && value.fract() > 0.05 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

fn short_bytes(value: f64) -> String {
    format!("{}B", short(value))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::{draw, short, short_bytes};
    use crate::benchmark::roof::{Bound, Ceiling};
    use kernelhub::dtype::DType;

    #[test]
    fn labels_are_short() {
        assert_eq!([1.5, 20.0, 1_000.0, 2_500_000.0, 3e9].map(short), ["1.5", "20", "1k", "2.5M", "3G"]);
        assert_eq!(short_bytes(1e6), "1MB");
    }

    #[test]
    fn every_layer_and_kind_has_its_picture() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = example();
        let mut other = report.results[0].clone();
        other.dtype = DType::Bf16;
        other.shape = "64x128".to_owned();
        (other.amounts.bytes_read, other.amounts.flop) = (1 << 20, Some(1 << 24));
        other.ceiling = Some(Ceiling { bound: Bound::Arithmetic, limit: 400.0, least_us: 1.0, threads: 2 });
        report.results.push(other);
        let paths = draw(&report, &folder.path().join("plots")).unwrap();
        let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["rmsnorm-RMSNorm-memory.svg", "rmsnorm-RMSNorm-arithmetic.svg", "rmsnorm-speedup.svg"]);
        let texts: Vec<String> = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert!(texts.iter().all(|text| text.starts_with("<svg") && text.trim_end().ends_with("</svg>")));
        for (at, words) in [
            (0, "copy, the best of the machine"),
            (0, "kernel, f32"),
            (0, "reference, f32"),
            (1, "bf16 dot products (400 GFLOP/s)"),
            (2, "RMSNorm 64x128 bf16"),
            (2, "10.00"),
        ] {
            assert!(texts[at].contains(words), "{words} in {}", names[at]);
        }
    }

    #[test]
    fn a_run_without_ceilings_and_one_without_cases_are_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = example();
        report.ceilings = None;
        report.results[0].ceiling = None;
        assert_eq!(draw(&report, folder.path()).unwrap().len(), 2);
        report.results.clear();
        assert_eq!(draw(&report, folder.path()).unwrap().len(), 1);
        assert!(draw(&report, std::path::Path::new("/dev/null/x")).is_err());
    }
}
