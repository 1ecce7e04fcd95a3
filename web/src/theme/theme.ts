import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

/** Lagoon: the one accent. */
const lagoon: MantineColorsTuple = [
  "#e6fafc",
  "#cdf1f5",
  "#9de3eb",
  "#69d4e0",
  "#41c7d6",
  "#22b3c4",
  "#1597a8",
  "#0f7c8b",
  "#0b6573",
  "#064e59",
];

export const theme = createTheme({
  primaryColor: "lagoon",
  primaryShade: { light: 8, dark: 7 },
  autoContrast: true,
  luminanceThreshold: 0.32,
  colors: { lagoon },
  defaultRadius: "sm",
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.25rem" },
  cursorType: "pointer",
});

/** Dimmed text of Mantine falls below AA on tinted surfaces: ours is set to pass on all of them. */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#56616b",
    "--mantine-color-placeholder": "#68737d",
    "--mantine-color-text": "#16202a",
    "--mantine-color-body": "#ffffff",
    "--mantine-color-error": "#b42318",
  },
  dark: {
    "--mantine-color-dimmed": "#a3adb8",
    "--mantine-color-placeholder": "#939da8",
    "--mantine-color-text": "#e4e9ee",
    "--mantine-color-body": "#11161b",
    "--mantine-color-error": "#ff9a8f",
  },
});
