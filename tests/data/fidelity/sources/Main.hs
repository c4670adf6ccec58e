module Main where

import Data.Char (toUpper)
import qualified Data.Map as Map

-- | Counts words (it's case-blind).
count :: String -> Map.Map String Int
count = foldr add Map.empty . words
  where
    add word = Map.insertWith (+) (map toUpper word) 1

main :: IO ()
main = do
  text <- getContents
  let found = Map.toList (count text)
  mapM_ (\(word, many) -> putStrLn (word ++ ": " ++ show many)) found
  if null found
    then putStrLn "nothing ')'"
    else return ()
