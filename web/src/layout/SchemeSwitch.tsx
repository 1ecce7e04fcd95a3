import { ActionIcon, type MantineColorScheme, useMantineColorScheme } from "@mantine/core";

const NEXT: Record<MantineColorScheme, MantineColorScheme> = { auto: "light", light: "dark", dark: "auto" };
const NAME: Record<MantineColorScheme, string> = { auto: "system", light: "light", dark: "dark" };

/** Goes round system, light, dark. The choice is kept in this browser. */
export function SchemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const label = `Colours: ${NAME[colorScheme]}. Change to ${NAME[NEXT[colorScheme]]}.`;
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      size="lg"
      aria-label={label}
      title={label}
      onClick={() => setColorScheme(NEXT[colorScheme])}
    >
      <svg width="18" height="18" viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="2" aria-hidden="true">
        {ICONS[colorScheme]}
      </svg>
    </ActionIcon>
  );
}

const ICONS: Record<MantineColorScheme, React.JSX.Element> = {
  auto: (
    <>
      <circle cx="12" cy="12" r="8" />
      <path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor" />
    </>
  ),
  light: (
    <>
      <circle cx="12" cy="12" r="4" />
      <path d="M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2" />
    </>
  ),
  dark: <path d="M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z" />,
};
