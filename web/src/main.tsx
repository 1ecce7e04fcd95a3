import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { isTransient } from "./api/problem";
import { router } from "./router";
import "./theme/mantine";
import "./theme/app.css";
import { cssVariables, theme } from "./theme/theme";

// `always`: a browser that believes itself offline still reaches a server on its own machine.
const queries = new QueryClient({
  defaultOptions: {
    queries: {
      networkMode: "always",
      retry: (failures, error) => isTransient(error) && failures < 2,
      staleTime: 500,
    },
    mutations: { networkMode: "always", retry: false },
  },
});
const schemes = localStorageColorSchemeManager({ key: "atoll-colours" });

const element = document.getElementById("root");
if (element === null) throw new Error("index.html has no element with id root");
createRoot(element).render(
  <StrictMode>
    <MantineProvider
      theme={theme}
      cssVariablesResolver={cssVariables}
      colorSchemeManager={schemes}
      defaultColorScheme="auto"
    >
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
